"""What ends because its time is up, or because the Workflow is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .calls import TemplateError, TimedOutError
from .durations import duration
from .names import seconds
from .nodes import Node
from .phases import FAILED, PENDING, fulfilled

if TYPE_CHECKING:
    from .operation import Operation

EXCEEDED = "Step exceeded its deadline"
TIMED_OUT = "timeout"


def check_pending(op: Operation, template: Mapping[str, Any], node: Node | None) -> None:
    """Raises TimedOutError for a node that is Pending for longer than its template's `timeout`; it is Failed then."""
    if node is None or node["phase"] != PENDING or not template.get("timeout"):
        return
    due = _timeout(op, op.process(template, node), node)
    if op.now > due:
        op.nodes.mark(node, FAILED, TIMED_OUT)
        raise TimedOutError(TIMED_OUT)
    op.wake_at(due + 0.001)


def of_pod(op: Operation, template: Mapping[str, Any], node: Node) -> int | None:
    """Seconds after its start at which the pod of `node` is ended, by `timeout` or else `activeDeadlineSeconds`.

    `template` is substituted. Raises TemplateError for a number that is none, and when the time is up already.
    """
    if template.get("timeout"):
        left = int(_timeout(op, template, node) - op.now)
        if left <= 1:
            raise TemplateError(f"{node['name']} exceeded its deadline")
        return left
    limit = template.get("activeDeadlineSeconds")
    try:
        return None if limit is None else int(str(limit))
    except ValueError:
        raise TemplateError(f"value '{limit}' cannot be resolved to an int") from None


def _timeout(op: Operation, template: Mapping[str, Any], node: Node) -> float:
    try:
        return seconds(node["startedAt"]) + duration(str(template["timeout"]))
    except ValueError:
        written = f'time: invalid duration "{template["timeout"]}"'
        raise TemplateError(f"invalid timeout format. {written}") from None


def cut_short(op: Operation) -> None:
    """Fails what a shutdown or the deadline leaves no time for."""
    if not op.shutdown and not op.overdue:
        return
    for node in op.nodes.live():
        if fulfilled(node):  # a daemon: it ends with what it belongs to
            continue
        on_exit = part_of_exit(op, node)
        suspended = node["type"] == "Suspend"
        if not op.may_start(on_exit):
            if node["type"] == "Pod":
                op.nodes.mark(node, FAILED, f"workflow shutdown with strategy:  {op.shutdown}")
                op.cut.add(node["id"])
            elif suspended:
                op.nodes.mark(node, FAILED, f"Stopped with strategy '{op.shutdown}'")
        elif op.overdue and not on_exit and (node["type"] == "Pod" or suspended):
            op.nodes.mark(node, FAILED, EXCEEDED)


def part_of_exit(op: Operation, node: Node) -> bool:
    """Whether `node` belongs to an exit handler, the Workflow's or a task's."""
    while True:
        name = str(node["displayName"])
        if (node.get("nodeFlag") or {}).get("retried"):
            name = name.rpartition("(")[0] or name
        if name.endswith(".onExit"):
            return True
        holder = op.nodes.get(node.get("boundaryID", ""))
        if holder is None:
            return False
        node = holder
