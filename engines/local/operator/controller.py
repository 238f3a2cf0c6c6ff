"""The controller: a Workflow, its pods as they are and the time -> its new status and what to do next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..pod import PodObservation
from . import pods, progress
from .decision import Decision
from .fields import unsupported
from .nodes import ERROR, FAILED, FULFILLED, OMITTED, PENDING, RUNNING, SKIPPED, SUCCEEDED, UNSUCCESSFUL, timestamp
from .operation import Call, Operation
from .scope import finished_scope
from .validate import invalid

_WORKFLOW_PHASE = {
    PENDING: PENDING, RUNNING: RUNNING, SUCCEEDED: SUCCEEDED, SKIPPED: SUCCEEDED, OMITTED: SUCCEEDED,
    FAILED: FAILED, ERROR: ERROR,
}  # fmt: skip
_ENDED = (SUCCEEDED, FAILED, ERROR)


def reconcile(workflow: Mapping[str, Any], observed: Mapping[str, PodObservation], now: float) -> Decision:
    """One pass: what Argo's controller would make of `workflow` at the unix time `now`.

    `workflow` is the whole object, its status included ({} at first); it is not changed, but the new status may share
    parts with it. `observed` has every pod known, by name. Repeating a pass does no harm, and what was not
    carried out of a decision is asked for again by the next.
    """
    status = dict(workflow.get("status") or {})
    if not status.get("phase"):
        status |= {"phase": RUNNING, "startedAt": timestamp(now), "finishedAt": None, "nodes": {}}
        if problems := unsupported(workflow) or invalid(workflow):
            _end(status, FAILED, f"invalid spec: {problems[0]}", now)
            return Decision(status)
    if status["phase"] in _ENDED and not status.get(
        "nodes"
    ):  # refused by an earlier pass: it may be no Workflow at all
        return Decision(status)
    op = Operation(workflow, observed, now)
    if status["phase"] in _ENDED:
        return Decision(status, terminate=pods.superfluous(op))
    pods.observe(op)
    pods.cut_short(op)
    if not op.spec.get("suspend"):
        outcome = _drive(op)
        if outcome is not None:
            _end(status, *outcome, now)
        else:
            pods.request_unseen(op)
    if op.deadline is not None and not op.overdue and status["phase"] == RUNNING:
        op.wake_at(op.deadline + 0.001)
    running = any(node["type"] == "Pod" and node["phase"] == RUNNING for node in op.nodes)
    _set_condition(status, "PodRunning", running)
    if op.nodes.changed or "progress" not in status:
        status["progress"] = progress.update(op.nodes)
    status["nodes"] = op.nodes.to_dict()
    terminate = pods.superfluous(op)
    return Decision(status, list(op.pods.values()), terminate, list(op.resources.values()), op.wake)


def _drive(op: Operation) -> tuple[str, str] | None:
    """Runs the entrypoint, then the exit handler. The Workflow's phase and message once both have ended."""
    arguments = (op.spec.get("arguments") or {}).get("parameters") or []
    root = op.execute(Call(op.name, op.spec["entrypoint"], arguments))
    if root is None or root["phase"] not in FULFILLED:
        return None
    phase = _WORKFLOW_PHASE[root["phase"]]
    message = root.get("message", "")
    if phase != SUCCEEDED and op.shutdown:
        message = f"Stopped with strategy '{op.shutdown}'"
    name = f"{op.name}.onExit"
    if not op.spec.get("onExit") or (op.nodes.named(name) is None and not op.may_start(on_exit=True)):
        return phase, "" if phase == SUCCEEDED else message
    op.globals |= finished_scope(op.nodes, phase)
    handler = op.execute(Call(name, op.spec["onExit"], arguments, on_exit=True, flag={"hooked": True}))
    if handler is None or handler["phase"] not in FULFILLED:
        return None
    if phase != SUCCEEDED:
        return phase, message
    if handler["phase"] in UNSUCCESSFUL:
        return handler["phase"], handler.get("message", "")
    return SUCCEEDED, ""


def _end(status: dict[str, Any], phase: str, message: str, now: float) -> None:
    status |= {"phase": phase, "finishedAt": timestamp(now)}
    if message:
        status["message"] = message
    _set_condition(status, "Completed", True)


def _set_condition(status: dict[str, Any], kind: str, holds: bool) -> None:
    """Sets one condition; the list is replaced, the old one may be the caller's."""
    condition = {"type": kind, "status": "True" if holds else "False"}
    old = status.get("conditions") or []
    if any(known["type"] == kind for known in old):
        status["conditions"] = [condition if known["type"] == kind else known for known in old]
    else:
        status["conditions"] = [*old, condition]
