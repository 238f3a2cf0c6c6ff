"""Daemons: pods that others go on beside, and that end with the DAG or steps they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nodes import Node
from .phases import SUCCEEDED, fulfilled

if TYPE_CHECKING:
    from .operation import Operation


def kill(op: Operation, boundary: str) -> None:
    """Ends the daemons of the DAG or steps node `boundary`: what they were there for is done."""
    if op.nodes.census.daemons[boundary] > 0:
        for node in op.nodes.live():
            if node.get("daemoned") and node.get("boundaryID", "") == boundary:
                op.nodes.mark(node, SUCCEEDED, daemoned=False)


def needed(op: Operation, daemon: Node) -> bool:
    """Whether something that came after `daemon` still runs: only then a dead one is started again."""
    stack, seen = [daemon["id"]], set()
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        children = op.nodes[key].get("children") or []
        if not children and not fulfilled(op.nodes[key]):
            return True
        stack.extend(children)
    return False
