"""A command that was stopped (SIGSTOP) keeps those waiting that train with it: not for ever."""

from __future__ import annotations

from .command import Command

STILL_MOST = 30.0  # seconds that a command may be stopped while other learners wait for it
STILL_LOOK = 2.0


class Still:
    """Times in seconds of one clock that only goes forward."""

    def __init__(self) -> None:
        self._since: float | None = None  # since when the command stands still
        self._look = 0.0

    def too_long(self, command: Command, now: float) -> bool:
        """Whether `command` has stood still for longer than it may. To be asked again and again."""
        if now < self._look:
            return False
        self._look = now + STILL_LOOK
        if not command.stands_still():
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since > STILL_MOST:
            self._since = None
            return True
        return False
