"""How many nodes are in which state beneath each boundary: kept up to date, because each pass asks often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .phases import PENDING, RUNNING, UNSUCCESSFUL, fulfilled

_COUNTED = frozenset(("Pod", "Steps", "DAG"))  # what `parallelism` and `failFast` of a template look at


class Census:
    """Numbers of nodes by the id of their boundary; a node without one counts under ''."""

    def __init__(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        self.unfinished: Counter[str] = Counter()  # of any type
        self.active: Counter[str] = Counter()  # Pods, Steps and DAGs that are Pending or Running
        self.unsuccessful: Counter[str] = Counter()  # Pods, Steps and DAGs
        self.pods: Counter[str] = Counter()  # Pending or Running
        self.all_pods = 0
        self.daemons: Counter[str] = Counter()
        for node in nodes:
            self.count(node, 1)

    def count(self, node: Mapping[str, Any], change: int) -> None:
        """Adds (1) or takes away (-1) a node as it is now."""
        boundary, phase, kind = node.get("boundaryID", ""), node["phase"], node["type"]
        if not fulfilled(node):
            self.unfinished[boundary] += change
        if node.get("daemoned"):
            self.daemons[boundary] += change
        if kind not in _COUNTED:
            return
        if phase in UNSUCCESSFUL:
            self.unsuccessful[boundary] += change
        elif phase in (PENDING, RUNNING):
            self.active[boundary] += change
            if kind == "Pod":
                self.pods[boundary] += change
                self.all_pods += change
