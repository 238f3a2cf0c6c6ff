"""Retry nodes: judging an ended attempt, waiting, and starting the next one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from . import daemons
from .calls import Call, TemplateError
from .durations import duration, humanize
from .expressions import evaluate_condition
from .names import seconds
from .nodes import Node
from .phases import ERROR, FAILED, FULFILLED, RUNNING, SUCCEEDED, UNSUCCESSFUL
from .templates import expand

if TYPE_CHECKING:
    from .operation import Operation

POLICIES = {
    "Always": (FAILED, ERROR),
    "OnFailure": (FAILED,),
    "OnError": (ERROR,),
    "OnTransientError": (FAILED, ERROR),  # if `transient`
}

_TRANSIENT = (
    "etcdserver: leader changed", "etcdserver: request timed out", "etcdserver: too many requests",
    "Connection closed by foreign host", "net/http: TLS handshake timeout", "i/o timeout", "connection timed out",
    "connection reset by peer", "http2: client connection lost",
    "http2: server sent GOAWAY and closed the connection", "connect: connection refused", "invalid connection",
)  # fmt: skip
_AGAIN_SOON = 1.0  # seconds; an attempt that ended before it began is not followed by the next in the same pass


def advance(
    op: Operation, call: Call, node: Node | None, template: Mapping[str, Any], inputs: Mapping[str, Any]
) -> Node:
    """Brings the Retry node of `call` as far as it goes now. Raises TemplateError, NoRoomError."""
    flag = {**(call.flag or {}), "retried": True}
    if node is None:
        node = op.nodes.create(
            call.name, "Retry", RUNNING, origin=call.origin, scope=call.scope, boundary=call.boundary,
            flag=flag if call.flag else None, inputs=inputs,
        )  # fmt: skip
    attempts = op.nodes.attempts(node)
    last = attempts[-1] if attempts else None
    if last is not None and last.get("daemoned"):
        return op.nodes.mark(node, RUNNING, daemoned=True)
    if last is not None and last["phase"] in FULFILLED:
        if not _again(op, node, template, attempts):
            return op.nodes[node["id"]]
        last = None
    number = len(attempts) - (last is not None)
    name = f"{call.name}({number})"
    try:
        op.run(call, name, last, template, inputs, flag)
    except TemplateError:
        if policy(op.strategy(template, node)) == "OnFailure":
            raise
    finally:
        attempt = op.nodes.named(name)
        if attempt is not None:
            op.nodes.adopt(node, attempt["id"])
    if attempt is not None and attempt["phase"] in FULFILLED and _again(op, node, template, op.nodes.attempts(node)):
        if last is not None:
            return op.execute(call)
        op.wake_at(op.now + _AGAIN_SOON)
    return op.nodes[node["id"]]


def attempt_scope(previous: Node | None, number: int) -> dict[str, str]:
    """`retries` and `lastRetry.*` as the templates of attempt `number` see them; the first has no last one."""
    if previous is None:
        last = {"exitCode": "0", "duration": "0", "status": "", "message": ""}
    else:
        last = {**_last(previous), "exitCode": (previous.get("outputs") or {}).get("exitCode", "0")}
    return {"retries": str(number)} | {f"lastRetry.{key}": value for key, value in last.items()}


def end_of_attempts(op: Operation, template: Mapping[str, Any], attempt: Node) -> float | None:
    """The unix time at which `maxDuration` ends an attempt that isn't the first, however it may end then."""
    name, _, number = attempt["name"].removesuffix(")").rpartition("(")
    holder = op.nodes.named(name) if number.isdigit() and int(number) > 0 else None
    if holder is None or holder["type"] != "Retry":
        return None
    longest = (op.strategy(template, holder).get("backoff") or {}).get("maxDuration")
    first = op.nodes.named(f"{name}(0)")
    return seconds(first["startedAt"]) + duration(str(longest)) if longest and first is not None else None


def policy(strategy: Mapping[str, Any]) -> str:
    """An expression alone decides alone; with neither, only failures are tried again."""
    return str(strategy.get("retryPolicy") or ("Always" if strategy.get("expression") else "OnFailure"))


def transient(message: str) -> bool:
    """Whether a failure of which `message` tells may be gone the next time: networks, and clusters under load."""
    return any(part in message for part in _TRANSIENT)


def _again(op: Operation, node: Node, template: Mapping[str, Any], attempts: list[Node]) -> bool:
    """Whether the next attempt is due. Else the node has its verdict, or waits."""
    last = attempts[-1]
    strategy = op.strategy(template, node)
    try:
        verdict = _verdict(op, strategy, attempts)
        due = _due(op, strategy, attempts) if verdict is None else 0.0
    except ValueError as error:
        raise TemplateError(str(error)) from None
    if verdict is not None:
        if last.get("outputs"):
            op.nodes.edit(node)["outputs"] = last["outputs"]
        op.nodes.mark(node, *verdict, daemoned=False)
        return False
    if node.get("daemoned") and not daemons.needed(op, node):
        return False
    if due > op.now:
        op.nodes.mark(node, node["phase"], f"Backoff for {humanize(_wait(strategy, len(attempts)))}")
        op.wake_at(due)
        return False
    op.nodes.mark(node, node["phase"], "")
    return True


def _verdict(op: Operation, strategy: Mapping[str, Any], attempts: list[Node]) -> tuple[str, str] | None:
    """The Retry node's end, or None if there is to be another attempt.

    Argo asks policy, limit and expression only when the backoff is over. Nothing they look at changes in that time, so
    here a final failure is final at once.
    """
    last = attempts[-1]
    phase, message = last["phase"], last.get("message", "")
    if phase not in UNSUCCESSFUL:
        return SUCCEEDED, ""
    if op.shutdown:
        return phase, f"Stopped with strategy '{op.shutdown}'"
    if op.overdue:
        ended = datetime.fromtimestamp(int(op.deadline or 0), UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
        return phase, f"retry exceeded workflow deadline {ended}"
    backoff = strategy.get("backoff") or {}
    if backoff.get("maxDuration"):
        end = seconds(attempts[0]["startedAt"]) + duration(str(backoff["maxDuration"]))
        if op.now > end:
            return phase, "Max duration limit exceeded"
        if seconds(last["finishedAt"]) + _wait(strategy, len(attempts)) > end:
            return phase, "Backoff would exceed max duration limit"
    wanted = policy(strategy)
    if phase not in POLICIES[wanted] or (wanted == "OnTransientError" and not transient(message)):
        return phase, message
    limit = strategy.get("limit")
    if limit is not None and len(attempts) > int(str(limit)):
        return phase, "No more retries left"
    if strategy.get("expression"):
        scope = {"retries": str(len(attempts) - 1)} | {f"lastRetry.{key}": value for key, value in _last(last).items()}
        if not evaluate_condition(strategy["expression"], expand(scope)):
            return phase, "retryStrategy.expression evaluated to false"
    return None


def _last(attempt: Node) -> dict[str, str]:
    return {
        "exitCode": (attempt.get("outputs") or {}).get("exitCode", "-1"),
        "status": attempt["phase"],
        "duration": str(int(seconds(attempt["finishedAt"]) - seconds(attempt["startedAt"]))),
        "message": attempt.get("message", ""),
    }


def _wait(strategy: Mapping[str, Any], attempts: int) -> float:
    """Seconds between the end of the last of `attempts` and the next; Argo knows no backoff without a limit."""
    backoff = strategy.get("backoff")
    if not backoff or strategy.get("limit") is None:
        return 0.0
    wait = duration(str(backoff["duration"]))
    factor = int(str(backoff.get("factor") or 1))
    try:
        wait *= float(max(factor, 1)) ** (attempts - 1)
    except OverflowError:
        wait = float("inf")
    return min(wait, duration(str(backoff["cap"]))) if backoff.get("cap") else min(wait, 1e9)


def _due(op: Operation, strategy: Mapping[str, Any], attempts: list[Node]) -> float:
    wait = _wait(strategy, len(attempts))
    due = seconds(attempts[-1]["finishedAt"]) + wait
    # an end in the future means that the clock was set back: nobody waits for it to catch up
    return due if due - op.now <= wait + 1.0 else op.now
