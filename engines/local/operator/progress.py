"""`progress` of nodes and Workflow: `N/M`, summed up over the pods beneath, failed attempts included."""

from __future__ import annotations

from .nodes import Nodes
from .phases import SUCCEEDED

_ZERO = (0, 0)


def valid(progress: str) -> bool:
    return _parse(progress) != _ZERO


def update(nodes: Nodes) -> str:
    """Brings the nodes' progress up to date; returns the Workflow's."""
    own: dict[str, tuple[int, int]] = {}
    total = _ZERO
    for node in nodes:
        if node["type"] != "Pod":
            continue
        done = _parse(node.get("progress", "")) if node.get("progress") else (0, 1)
        if node["phase"] == SUCCEEDED:
            done = (done[1], done[1])
        own[node["id"]] = done
        total = (total[0] + done[0], total[1] + done[1])
        _write(nodes, node["id"], done)
    for node in nodes:
        if node["type"] != "Pod":
            _write(nodes, node["id"], _sum(nodes, node["id"], own))
    return f"{total[0]}/{total[1]}"


def _sum(nodes: Nodes, key: str, own: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Over everything that can be reached from the node, which is also what runs after it: as Argo does."""
    reached, total = 0, 0
    seen = set(nodes[key].get("children") or [])
    stack = list(seen)
    while stack:
        child = stack.pop()
        if child in own:
            reached, total = reached + own[child][0], total + own[child][1]
        for next_ in nodes[child].get("children") or []:
            if next_ not in seen:
                seen.add(next_)
                stack.append(next_)
    return reached, total


def _write(nodes: Nodes, key: str, done: tuple[int, int]) -> None:
    text = f"{done[0]}/{done[1]}"
    if done[1] > 0 and nodes[key].get("progress") != text:
        nodes.edit(nodes[key])["progress"] = text


def _parse(progress: str) -> tuple[int, int]:
    left, slash, right = progress.partition("/")
    if (
        not (slash and left.isdecimal() and right.isdecimal() and left.isascii() and right.isascii())
        or len(progress) > 38
    ):
        return _ZERO
    reached, total = int(left), int(right)
    return (reached, total) if reached <= total and total > 0 else _ZERO
