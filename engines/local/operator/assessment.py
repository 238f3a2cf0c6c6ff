"""The phase of a DAG, out of those of its target tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from .nodes import Node, Nodes
from .phases import COMPLETED, ERROR, FAILED, RUNNING, SUCCEEDED, UNSUCCESSFUL, ended, fulfilled


def assess(nodes: Nodes, dag: Node, template: Mapping[str, Any], targets: Mapping[str, Mapping[str, Any]]) -> str:
    """Running, or the phase of the target tasks (node name -> task) of the node `dag` once nothing of it runs.

    A target that didn't run takes the phase of the branch that leads to it, a failed one before a succeeded one.
    """
    if nodes.census.unfinished[dag["id"]]:
        return RUNNING
    found = dict.fromkeys(targets, "")
    queue = deque((key, SUCCEEDED) for key in nodes[dag["id"]].get("children") or [])
    seen = set(queue)
    while queue:
        key, branch = queue.popleft()
        node = nodes[key]
        if not fulfilled(node) and not _abandoned(nodes, node):
            return RUNNING
        if node["phase"] in COMPLETED:
            branch = node["phase"]
        if found.get(node["name"], ERROR) not in UNSUCCESSFUL:
            found[node["name"]] = branch
        for child in _followers(nodes, node):
            if (child, branch) not in seen:
                seen.add((child, branch))
                queue.append((child, branch))
    return _of_targets(found, targets, fail_fast=template["dag"].get("failFast", True))


def _abandoned(nodes: Nodes, node: Node) -> bool:
    """Whether a node belongs to a template that has ended without it: a loop that `failFast` cut short."""
    holder = nodes.get(node.get("boundaryID", ""))
    return holder is not None and ended(holder)


def _of_targets(found: Mapping[str, str], targets: Mapping[str, Mapping[str, Any]], *, fail_fast: bool) -> str:
    result = SUCCEEDED
    for name, task in targets.items():
        phase = found[name]
        if not phase:
            result = RUNNING
            if not fail_fast:
                break
        elif phase in UNSUCCESSFUL:
            goes_on = task.get("continueOn") or {}
            if goes_on.get("failed" if phase == FAILED else "error"):
                continue
            result = phase
            if fail_fast:
                break
    return result


def _followers(nodes: Nodes, node: Node) -> list[str]:
    """The children of a node; of a Retry its hooks and what follows its attempts, which are no concern of their own."""
    children: list[str] = node.get("children") or []
    if node["type"] != "Retry":
        return children
    attempts = [attempt["id"] for attempt in nodes.attempts(node)]
    hooks = [key for key in children if key not in attempts]
    return hooks + [key for attempt in reversed(attempts) for key in nodes[attempt].get("children") or []]
