"""The embedded engine's controller: Argo's semantics as one pure function, `reconcile`."""

from .controller import reconcile
from .decision import Decision, PodRequest, Resource
from .fields import unsupported, without_effect
from .operation import Memory
from .phases import ended
from .suspension import NotSuspendedError, resume
from .validate import invalid, problems

__all__ = [
    "Decision",
    "Memory",
    "NotSuspendedError",
    "PodRequest",
    "Resource",
    "ended",
    "invalid",
    "problems",
    "reconcile",
    "resume",
    "unsupported",
    "without_effect",
]
