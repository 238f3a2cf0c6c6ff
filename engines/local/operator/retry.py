"""Retry nodes: judging an ended attempt, waiting, and starting the next one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .expressions import evaluate_condition
from .nodes import ERROR, FAILED, FULFILLED, RUNNING, SUCCEEDED, UNSUCCESSFUL, Node, seconds
from .templates import expand

if TYPE_CHECKING:
    from .operation import Call, Operation

POLICIES = {"Always": (FAILED, ERROR), "OnFailure": (FAILED,), "OnError": (ERROR,)}

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_AGAIN_SOON = 1.0  # seconds; an attempt that ended before it began is not followed by the next in the same pass


def advance(op: Operation, call: Call, node: Node | None, template: Mapping[str, Any], inputs: list[Any]) -> Node:
    """Brings the Retry node of `call` as far as it goes now."""
    if node is None:
        node = op.nodes.create(
            call.name, "Retry", RUNNING,
            template=call.template, boundary=call.boundary, flag=call.flag, inputs={"parameters": inputs},
        )  # fmt: skip
    attempts = op.nodes.attempts(node)
    if attempts and attempts[-1]["phase"] in FULFILLED and not _again(op, node, template, attempts):
        return op.nodes[node["id"]]
    number = len(attempts)
    running = attempts[-1] if attempts and attempts[-1]["phase"] not in FULFILLED else None
    if running is not None:
        number -= 1
    flag = {**(call.flag or {}), "retried": True}
    attempt = op.run(call, f"{call.name}({number})", running, template, inputs, flag)
    if attempt is None:  # no room for another pod now
        return node
    op.nodes.adopt(node, attempt["id"])
    if attempt["phase"] in FULFILLED and _again(op, node, template, op.nodes.attempts(node)):
        if running is not None:
            return advance(op, call, op.nodes[node["id"]], template, inputs)
        op.wake_at(op.now + _AGAIN_SOON)
    return op.nodes[node["id"]]


def attempt_scope(previous: Node | None, number: int) -> dict[str, str]:
    """`retries` and `lastRetry.*` as the templates of attempt `number` see them; the first has no last one."""
    if previous is None:
        last = {"exitCode": "0", "duration": "0", "status": "", "message": ""}
    else:
        last = {**_last(previous), "exitCode": (previous.get("outputs") or {}).get("exitCode", "0")}
    return {"retries": str(number)} | {f"lastRetry.{key}": value for key, value in last.items()}


def duration(written: str) -> float:
    """Seconds of a Go duration (`1m30s`); a plain number is seconds. Raises ValueError."""
    if re.fullmatch(r"\d+", written):
        return float(written)
    parts = _DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise ValueError(f"unable to parse {written} as a duration")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def policy(strategy: Mapping[str, Any]) -> str:
    """An expression alone decides alone; with neither, only failures are tried again."""
    return str(strategy.get("retryPolicy") or ("Always" if strategy.get("expression") else "OnFailure"))


def _again(op: Operation, node: Node, template: Mapping[str, Any], attempts: list[Node]) -> bool:
    """Whether the next attempt is due. Else the node has its verdict, or waits."""
    last = attempts[-1]
    strategy = op.strategy(template, node)
    try:
        verdict = _verdict(op, strategy, attempts)
        due = _due(op, strategy, attempts) if verdict is None else 0.0
    except ValueError as error:
        verdict = (ERROR, str(error))
    if verdict is not None:
        node = op.nodes.mark(node, *verdict)
        if last.get("outputs"):
            op.nodes.edit(node)["outputs"] = last["outputs"]
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
        return phase, f"retry exceeded workflow deadline {op.deadline_text}"
    backoff = strategy.get("backoff") or {}
    if backoff.get("maxDuration"):
        end = seconds(attempts[0]["startedAt"]) + duration(str(backoff["maxDuration"]))
        if op.now > end:
            return phase, "Max duration limit exceeded"
        if seconds(last["finishedAt"]) + _wait(strategy, len(attempts)) > end:
            return phase, "Backoff would exceed max duration limit"
    if phase not in POLICIES[policy(strategy)]:
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


def humanize(span: float) -> str:
    """Seconds as Argo's messages say them: `5 seconds`, `1 minute 30 seconds`."""
    whole = int(span)
    for size, unit, smaller, name in (
        (86400, "day", 3600, "hours"),
        (3600, "hour", 60, "minutes"),
        (60, "minute", 1, "seconds"),
    ):
        if whole >= size:
            return f"{_count(whole // size, unit)} {whole % size // smaller} {name}"
    return _count(whole, "second")


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
