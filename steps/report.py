"""The helper's one line of status, for `ffdl status` and `ffdl list`: a pure function of the coordinator."""

from __future__ import annotations

import math
from typing import Any

from .coordinator import Coordinator
from .members import words


class Pace:
    """Steps per second since the first step that was seen, or that was done again, for the time that remains."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._last = self._of = 0

    def remaining(self, step: int, of: int, now: float) -> float | None:
        """Seconds until step `of`; None while unknown. `now` in seconds of any one clock."""
        if self._first is None or step < self._last or of != self._of:  # done again, or of more learners
            self._first, self._of = (now, step), of
        self._last = step
        seconds, steps = now - self._first[0], step - self._first[1]
        return (of - step) * seconds / steps if steps > 0 and seconds > 0 else None


def progress(coordinator: Coordinator) -> tuple[int, int] | None:
    """(steps done, of how many), summed over the learners of whom it is known; None while it is of none."""
    completed = coordinator.state.completed
    known = [reached(coordinator, index) for index in range(coordinator.spec.learners)]
    steps = [(of if completed else min(step, of), of) for step, of in known if step is not None and of]
    if not steps:
        return (1, 1) if completed else None
    return sum(done for done, _ in steps), sum(of for _, of in steps)


def reached(coordinator: Coordinator, index: int) -> tuple[int | None, int | None]:
    """(step, of how many): what the learner says, or, before its first step, the checkpoint that it goes on from."""
    member, state = coordinator.members.get(index), coordinator.state
    if member is not None and member.step is not None:
        return member.step, member.of
    return state.checkpoints.get(index), state.of.get(index)


def report(coordinator: Coordinator, pace: Pace, now: float, unix_time: float, storing: str = "") -> dict[str, Any]:
    """What there is to say of the job. `now` is the coordinator's clock, `unix_time` the world's, in seconds."""
    state = coordinator.state
    members = [member for member in coordinator.members.values() if member.learns]
    first = coordinator.members.get(0) or next(iter(members), None)
    share, (step, of) = progress(coordinator), reached(coordinator, first.index if first else 0)
    going = coordinator.formed and not coordinator.over and any(member.step is not None for member in members)
    eta = pace.remaining(*share, now) if share and going and not coordinator.hung(now) else None
    joined = sum(1 for member in members if member.conn is not None)
    return {
        "progress": f"{share[0]}/{share[1]}" if share else "",
        "step": step,
        "of": of,
        "checkpoint": max((step for index, step in state.checkpoints.items() if index >= 0), default=None),
        "eta": round(eta, 1) if eta is not None else None,
        "metrics": {name: _as_json(value) for name, value in first.metrics.items()} if first else {},
        "restarts": sum(member.restarts for member in coordinator.members.values()),
        "generation": state.generation,
        "learners": {"wanted": coordinator.spec.learners, "joined": joined, "done": len(state.done)},
        "message": storing or _message(coordinator, joined, now),
        "running_seconds": round(state.running, 1),
        "epoch": coordinator.epoch,
        "time": round(unix_time, 3),
    }


def _as_json(value: float) -> float | str:
    """JSON has no number that is none, as a loss may become, nor infinite ones: these as protocol buffers' JSON has
    them."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _message(coordinator: Coordinator, joined: int, now: float) -> str:
    state = coordinator.state
    if state.ended:
        return state.ended
    if state.completed:
        return "completed"
    if coordinator.halting is not None:
        return f"halting; unshipped: {state.unshipped}" if state.unshipped else "halting"
    if not coordinator.formed:
        wanted, servers = coordinator.spec.learners - len(state.done), coordinator.spec.servers
        there = sum(1 for member in coordinator.members.values() if not member.learns and member.conn is not None)
        if joined >= wanted and there < servers:
            return f"waiting for parameter servers: {there} of {servers} have joined"
        return f"waiting for learners: {joined} of {wanted} have joined"
    if hung := coordinator.hung(now):
        member, since = hung
        minutes = int((now - since) / 60)
        return f"waiting for {words(member.index)}, which others have finished without: no step for {minutes} min"
    return "training"
