"""Who is named where a job does not come to its end: one that others, who have finished, wait for."""

from __future__ import annotations

from collections.abc import Iterable

from .members import Member

STILL = 60.0  # seconds without a step after which one that others wait for is said to be hung


class Hang:
    """Times in seconds of the coordinator's clock."""

    def __init__(self) -> None:
        self._since: float | None = None  # when it was first seen that someone has finished

    def note(self, finished: bool, now: float) -> None:
        """Whether someone has finished. To be told again and again."""
        if not finished:
            self._since = None
        elif self._since is None:
            self._since = now

    def find(self, going: Iterable[Member], now: float) -> tuple[Member, float] | None:
        """One of those that are at work and have stopped to take steps, and since when.

        Of one that has never reported a step nothing is known but that another has finished.
        """
        first = now if self._since is None else self._since
        since = ((member, max(member.moved, first) if member.step is None else member.moved) for member in going)
        return next(((member, at) for member, at in since if now - at > STILL), None)
