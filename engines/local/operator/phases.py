"""The phases of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PENDING, RUNNING, SUCCEEDED, FAILED, ERROR = "Pending", "Running", "Succeeded", "Failed", "Error"
SKIPPED, OMITTED = "Skipped", "Omitted"
UNSUCCESSFUL = frozenset((FAILED, ERROR))
COMPLETED = frozenset((SUCCEEDED, FAILED, ERROR))  # it ran
FULFILLED = COMPLETED | {SKIPPED, OMITTED}  # nothing more will come of it


def fulfilled(node: Mapping[str, Any]) -> bool:
    """Whether what waits for the node may go on: it has ended, or it is a daemon that is up."""
    return node["phase"] in FULFILLED or bool(node.get("daemoned") and node["phase"] != PENDING)


def ended(node: Mapping[str, Any]) -> bool:
    return node["phase"] in FULFILLED


def settled(node: Mapping[str, Any]) -> bool:
    """Whether the controller can do nothing for the node now: it has ended, or its pod runs."""
    return node["phase"] in FULFILLED or (node["phase"] == RUNNING and node["type"] == "Pod")
