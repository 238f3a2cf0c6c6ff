"""The learners that have joined, and what of their messages can be believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .channel import Message


@dataclass
class Member:
    """A learner that has joined since this helper started."""

    index: int
    incarnation: str
    attempt: int
    address: str
    port: int
    conn: int | None = None
    heard: float = 0.0
    lost: float = 0.0
    data: int = 0  # the port at which the others of a world find its overlay
    generation: int = 0  # of the world in which its command runs
    checkpoint: int = -1  # last step that it has committed
    running: bool = False
    leaving: bool = False  # it said, or was told, that it ends
    step: int | None = None
    of: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def member_of(message: Message, learners: int) -> Member | None:
    """The member that a JOIN speaks of; None if there can be no such."""
    index, attempt, incarnation = message.get("index"), message.get("attempt"), message.get("incarnation")
    if message.get("role") != "learner" or not isinstance(incarnation, str):
        return None
    if not isinstance(index, int) or not 0 <= index < learners or not isinstance(attempt, int):
        return None
    port = count(message.get("port"), 0) or 0
    member = Member(index, incarnation, attempt, str(message.get("address", "")), port)
    member.data, member.generation = count(message.get("data"), 0) or 0, count(message.get("generation"), 0) or 0
    member.checkpoint = checkpoint_of(message, -1)
    member.running = message.get("running") is True
    member.step, member.of = count(message.get("step"), None), count(message.get("of"), None)
    return member


def checkpoint_of(message: Message, otherwise: int) -> int:
    """The last step that its sender has committed; -1: none."""
    step = message.get("checkpoint")
    return step if isinstance(step, int) and (step == -1 or _is_count(step)) else otherwise


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and -1e308 < value < 1e308  # neither nan nor infinite nor beyond a float


def count(value: Any, otherwise: int | None) -> int | None:
    return value if _is_count(value) else otherwise
