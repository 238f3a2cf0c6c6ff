"""When a node and the deployments of the cluster count as ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .place import DEVICES

NEEDED = {("kube-system", "coredns"), ("argo", "workflow-controller"), ("argo", "argo-server")}


def node(seen: dict[str, Any]) -> bool:
    """Whether it takes pods and has all of its devices."""
    conditions = {each["type"]: each["status"] for each in seen["status"].get("conditions", ())}
    allocatable = seen["status"].get("allocatable", {})
    return conditions.get("Ready") == "True" and all(allocatable.get(name) == str(n) for name, n in DEVICES.items())


def deployments(seen: Sequence[dict[str, Any]]) -> bool:
    """Whether DNS and Argo are there, each with all of its pods, and with none of an earlier version."""
    named = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in seen}
    return named.keys() >= NEEDED and all(rolled_out(named[name]) for name in NEEDED)


def rolled_out(deployment: dict[str, Any]) -> bool:
    """Whether it has as many pods as it wants, at least one, all of its present version and all available."""
    status, wanted = deployment["status"], deployment["spec"]["replicas"]
    counts = {status.get(f"{which}eplicas", 0) for which in ("r", "updatedR", "availableR")}
    return (
        status.get("observedGeneration") == deployment["metadata"]["generation"] and counts == {wanted} and wanted > 0
    )
