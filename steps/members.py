"""The learners and parameter servers that have joined, and what of their messages can be believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..learner import contract
from .channel import Message
from .view import number_of


@dataclass
class Member:
    """A learner or a parameter server that has joined since this helper started, under its number (`number_of`)."""

    index: int
    incarnation: str
    attempt: int
    address: str
    port: int
    conn: int | None = None
    heard: float = 0.0
    lost: float = 0.0
    data: int = 0  # the port at which the others of a world find it
    generation: int = 0  # of the world in which its command runs
    checkpoints: tuple[tuple[int, int], ...] = ()  # that it has committed, newest first: step, generation
    running: bool = False
    finished: bool = False  # its command has ended well
    leaving: bool = False  # it said, or was told, that it ends
    step: int | None = None
    moved: float = 0.0  # when the last step was heard of
    of: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    restarts: int = 0  # of its command in place, after it was killed

    @property
    def learns(self) -> bool:
        return self.index >= 0


def member_of(message: Message, spec: contract.JobSpec) -> Member | None:
    """The member that a JOIN speaks of; None if there can be no such."""
    index, attempt, incarnation = message.get("index"), message.get("attempt"), message.get("incarnation")
    role = str(message.get("role"))
    most = {contract.LEARNER: spec.learners, contract.PARAMETER_SERVER: spec.servers}.get(role, 0)
    if not isinstance(index, int) or not 0 <= index < most or not isinstance(attempt, int):
        return None
    if not isinstance(incarnation, str):
        return None
    port = count(message.get("port"), 0) or 0
    member = Member(number_of(role, index), incarnation, attempt, str(message.get("address", "")), port)
    member.data, member.generation = count(message.get("data"), 0) or 0, count(message.get("generation"), 0) or 0
    member.checkpoints = checkpoints_of(message, ())
    member.running, member.finished = message.get("running") is True, message.get("finished") is True
    member.step, member.of = count(message.get("step"), None), count(message.get("of"), None)
    return member


def words(number: int) -> str:
    """The member that goes by `number`, in a sentence."""
    return f"learner {number + 1}" if number >= 0 else f"parameter server {~number + 1}"


def checkpoints_of(message: Message, otherwise: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """What its sender has committed: step and generation of each, newest first."""
    told = message.get("checkpoints")
    if not isinstance(told, list):
        return otherwise
    pairs = [one for one in told[: contract.CHECKPOINTS_TOLD] if isinstance(one, list) and len(one) == 2]
    return tuple((step, generation) for step, generation in pairs if _is_count(step) and _is_count(generation))


def metrics_of(message: Message, otherwise: dict[str, float]) -> dict[str, float]:
    """The numbers in what its sender has measured last."""
    told = message.get("metrics")
    return {name: value for name, value in told.items() if is_number(value)} if isinstance(told, dict) else otherwise


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and -1e308 < value < 1e308)  # none beyond a float


def count(value: Any, otherwise: int | None) -> int | None:
    return value if _is_count(value) else otherwise
