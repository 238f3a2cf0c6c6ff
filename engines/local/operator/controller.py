"""The controller: a Workflow, its pods as they are and the time -> its new status and what to do next. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ..pod import PodObservation
from . import daemons, deadlines, hooks, pods, progress
from .calls import Call, NoRoomError, TemplateError, TimedOutError, TooDeepError
from .decision import Decision
from .expressions import ExpressionError
from .fields import unsupported
from .names import timestamp
from .nodes import Node
from .operation import MAX_DEPTH, Memory, Operation
from .phases import ERROR, FAILED, FULFILLED, OMITTED, PENDING, RUNNING, SKIPPED, SUCCEEDED, UNSUCCESSFUL, fulfilled
from .scope import finished_scope
from .templates import substitute
from .validate import invalid

_WORKFLOW_PHASE = {
    PENDING: PENDING, RUNNING: RUNNING, SUCCEEDED: SUCCEEDED, SKIPPED: SUCCEEDED, OMITTED: SUCCEEDED,
    FAILED: FAILED, ERROR: ERROR,
}  # fmt: skip
_ENDED = (SUCCEEDED, FAILED, ERROR)
FRAMES = 30  # more than it takes to run a template within another


def reconcile(
    workflow: Mapping[str, Any], observed: Mapping[str, PodObservation], now: float, memory: Memory | None = None
) -> Decision:
    """One pass: what Argo's controller would make of `workflow` at the unix time `now`.

    `workflow` is the whole object, its status included ({} at first); it is not changed, but the new status may share
    parts with it. `observed` has every pod known, by name. Repeating a pass does no harm, and what was not
    carried out of a decision is asked for again by the next. `memory`, one for each Workflow and handed in each time,
    makes passes over many nodes fast if `workflow` holds the very status that the pass before returned.
    """
    status = dict(workflow.get("status") or {})
    if not status.get("startedAt") and status.get("phase") not in _ENDED:
        status |= {"phase": RUNNING, "startedAt": timestamp(now), "finishedAt": None, "nodes": {}, "progress": "0/0"}
        reference = (workflow.get("spec") or {}).get("workflowTemplateRef")
        if reference:  # one that is there was joined into the spec when the Workflow was submitted
            kind = "clusterworkflowtemplate" if reference.get("clusterScope") else "workflowtemplate"
            _end(status, ERROR, f'{kind}.argoproj.io "{reference.get("name")}" not found', now)
            return Decision(status)
        if problems := unsupported(workflow) or invalid(workflow):
            _end(status, FAILED, f"invalid spec: {problems[0]}", now)
            return Decision(status)
    if status["phase"] in _ENDED and not status.get(
        "nodes"
    ):  # refused by an earlier pass: it may be no Workflow at all
        return Decision(status)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES * MAX_DEPTH))
    try:
        op = Operation(workflow, status, observed, now, memory or Memory())
    except ExpressionError as error:  # of a label
        _end(status, ERROR, str(error), now)
        return Decision(status)
    if status["phase"] in _ENDED:
        return Decision(status, terminate=pods.superfluous(op))
    pods.observe(op)
    deadlines.cut_short(op)
    pods.end_containers(op)
    if not op.spec.get("suspend"):
        outcome = _drive(op)
        if outcome is not None:
            for boundary in list(op.nodes.census.daemons):
                daemons.kill(op, boundary)
            _end(status, *outcome, now)
        else:
            pods.request_unseen(op)
    if op.deadline is not None and not op.overdue and status["phase"] == RUNNING:
        op.wake_at(op.deadline + 0.001)
    running = any(node["type"] == "Pod" and node["phase"] == RUNNING for node in op.nodes.live())
    _set_condition(status, "PodRunning", running)
    status["progress"] = progress.update(op.nodes, status.get("progress", ""))
    status["nodes"] = op.nodes.to_dict()
    terminate = pods.superfluous(op)
    return Decision(status, list(op.pods.values()), terminate, list(op.resources.values()), op.wake)


def _drive(op: Operation) -> tuple[str, str] | None:
    """Runs the entrypoint with its hooks, then the exit handler. The Workflow's phase and message once all ended."""
    arguments = op.spec.get("arguments") or {}
    origin = {"template": substitute(op.spec["entrypoint"], op.globals)}
    try:
        root = op.execute(Call(op.name, origin, op.scope, arguments))
    except NoRoomError:
        return None
    except (TemplateError, TooDeepError, TimedOutError) as error:
        return ERROR, f"error in entry template execution: {error}"
    phase = _WORKFLOW_PHASE[root["phase"]]
    if op.spec.get("hooks") or root["phase"] in FULFILLED:
        op.globals |= finished_scope(op.nodes, phase)
    over = fulfilled(root)
    try:
        if not hooks.attend_workflow(op, root):
            return None
    except TemplateError as error:
        if root["type"] != "Pod":  # what becomes of a pod is the pod's to say
            op.nodes.mark(root, ERROR, str(error))
            op.wake_at(op.now)
    if not over:
        if op.spec.get("hooks") and any(node["type"] != "Pod" and fulfilled(node) for _, node in op.nodes.changed()):
            op.wake_at(op.now)  # a hook may have ended, and the root was looked at before
        return None
    if root["phase"] not in FULFILLED:  # a daemon and nothing else: it has done what it was there for
        daemons.kill(op, "")
        root, phase = op.nodes[root["id"]], SUCCEEDED
    try:
        handler = _exit_handler(op)
    except NoRoomError:
        return None
    except (TemplateError, TooDeepError, TimedOutError) as error:
        return ERROR, f"error in exit template execution : {error}"
    if handler is not None and not fulfilled(handler):
        return None
    if phase == SUCCEEDED:
        if handler is not None and handler["phase"] in UNSUCCESSFUL:
            return handler["phase"], handler.get("message", "")
        return SUCCEEDED, ""
    if op.shutdown:
        return phase, f"Stopped with strategy '{op.shutdown}'"
    return phase, root.get("message", "")


def _exit_handler(op: Operation) -> Node | None:
    """Runs the Workflow's exit handler, if it has one; its `expression` is ignored, as Argo does."""
    hook = hooks.exit_hook(op, op.spec)
    name = f"{op.name}.onExit"
    if hook is None or (op.nodes.named(name) is None and not op.may_start(on_exit=True)):
        return None
    hook = substitute(hook, op.globals)
    call = Call(name, hook, op.scope, hook["arguments"], on_exit=True, flag={"hooked": True})
    return op.execute(call)


def _end(status: dict[str, Any], phase: str, message: str, now: float) -> None:
    status |= {"phase": phase, "finishedAt": timestamp(now), "progress": status.get("progress", "0/0")}
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
