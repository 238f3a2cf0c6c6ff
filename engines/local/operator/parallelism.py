"""`parallelism` of Workflow and templates, and `failFast` of templates: who may start or go on in this pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .calls import NoRoomError
from .nodes import Node
from .phases import FAILED, PENDING, RUNNING

if TYPE_CHECKING:
    from .operation import Operation

FAILED_FAST = "template has failed or errored children and failFast enabled"


def check(op: Operation, template: Mapping[str, Any], node: Node | None, boundary: str) -> None:
    """Raises NoRoomError where Argo would not run `template` now, as `node` or as a new one beneath `boundary`.

    A Workflow with all its pods running does nothing else, not even with the nodes it has.
    """
    limit = op.spec.get("parallelism")
    census = op.nodes.census
    if limit is not None and census.all_pods >= int(limit):
        raise NoRoomError
    if node is not None and ("dag" in template or "steps" in template):
        _fail_fast(op, template, node)
        if _limit(template) and census.pods[node["id"]] >= _limit(template):
            raise NoRoomError
    if boundary and (node is None or node["phase"] not in (PENDING, RUNNING)):
        holder = op.nodes[boundary]
        above = op.templates.of(op.nodes, holder)
        _fail_fast(op, above, holder)
        if _limit(above) and census.active[boundary] >= _limit(above):
            raise NoRoomError


def _limit(template: Mapping[str, Any]) -> int:
    return int(template.get("parallelism") or 0)


def _fail_fast(op: Operation, template: Mapping[str, Any], node: Node) -> None:
    census, key = op.nodes.census, node["id"]
    if not template.get("failFast") or not census.unsuccessful[key]:
        return
    if not census.pods[key]:
        group = _last_group(op, node) if "steps" in template else None
        if group is not None:
            op.nodes.mark(group, FAILED, FAILED_FAST)
        op.nodes.mark(node, FAILED, FAILED_FAST)
        op.wake_at(op.now)
    raise NoRoomError


def _last_group(op: Operation, node: Node) -> Node | None:
    """The last StepGroup that can be reached from `node`."""
    found, stack, seen = None, [node["id"]], set()
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        reached = op.nodes[key]
        if reached["type"] == "StepGroup":
            found = reached
        stack.extend(reversed(reached.get("children") or []))
    return found
