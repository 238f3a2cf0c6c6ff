"""`progress` of nodes and Workflow: `N/M`, summed up over the pods and gates beneath, failed attempts included."""

from __future__ import annotations

from .nodes import Node, Nodes
from .phases import OMITTED, SKIPPED, SUCCEEDED

Progress = tuple[int, int]  # reached, total

_ZERO = (0, 0)
_EXECUTABLE = frozenset(("Pod", "Suspend", "Container"))  # what has progress of its own
_DONE = frozenset((SUCCEEDED, SKIPPED, OMITTED))


def valid(progress: str) -> bool:
    return _parse(progress) != _ZERO


def update(nodes: Nodes, total: str) -> str:
    """Brings the nodes' progress up to date with what changed in this pass; returns the Workflow's, `total` before."""
    sums: dict[str, Progress] = {}
    whole = _parse(total)
    for old, new in nodes.changed():
        if new["type"] not in _EXECUTABLE:
            continue
        own = _own(new)
        if new.get("progress") != _text(own):
            nodes.edit(new)["progress"] = _text(own)
        before = _own(old) if old is not None else _ZERO
        more = (own[0] - before[0], own[1] - before[1])
        if more == _ZERO:
            continue
        whole = _add(whole, more)
        for above in nodes.above(new["id"]):
            sums[above] = _add(sums.get(above, _ZERO), more)
    for key, more in sums.items():
        node = nodes[key]
        if node["type"] not in _EXECUTABLE:
            nodes.edit(node)["progress"] = _text(_add(_parse(node.get("progress", "")), more))
    return _text(whole)


def _own(node: Node) -> Progress:
    own = _parse(node["progress"]) if node.get("progress") else (0, 1)
    return (own[1], own[1]) if node["phase"] in _DONE else own


def _add(one: Progress, other: Progress) -> Progress:
    return one[0] + other[0], one[1] + other[1]


def _text(progress: Progress) -> str:
    return f"{progress[0]}/{progress[1]}"


def _parse(progress: str) -> Progress:
    left, slash, right = progress.partition("/")
    if (
        not (slash and left.isdecimal() and right.isdecimal() and left.isascii() and right.isascii())
        or len(progress) > 38
    ):
        return _ZERO
    reached, total = int(left), int(right)
    return (reached, total) if reached <= total and total > 0 else _ZERO
