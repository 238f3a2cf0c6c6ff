"""The embedded engine's controller: Argo's semantics as one pure function, `reconcile`."""

from .controller import reconcile
from .decision import Decision, PodRequest, Resource
from .fields import unsupported, without_effect
from .validate import invalid, problems

__all__ = ["Decision", "PodRequest", "Resource", "invalid", "problems", "reconcile", "unsupported", "without_effect"]
