"""How long a cluster that does not answer is asked again by who stays with a job."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ..base import EngineError
from .errors import ApiError, Unreachable

PATIENCE = 180.0  # seconds
RIGHTS_PATIENCE = 10.0  # an API server that has just started may not know yet what its users may do
PAUSE_FIRST, PAUSE_MOST = 0.2, 5.0

T = TypeVar("T")


class Patience:
    """How long to wait before the cluster is asked once more, and until when."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._pause = PAUSE_FIRST

    def answered(self) -> None:
        self._since, self._pause = None, PAUSE_FIRST

    def again(self, error: EngineError) -> float:
        """Seconds until it is asked again. Raises `error` where that helps nothing, or for too long already."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= _patience(error):
            raise error
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_MOST)
        return pause


def _patience(error: EngineError) -> float:
    if isinstance(error, ApiError) and error.status in (401, 403):
        return RIGHTS_PATIENCE
    return PATIENCE if passing(error) else 0.0


def passing(error: EngineError) -> bool:
    """Whether the cluster may well answer otherwise soon."""
    if isinstance(error, ApiError):
        return error.status == 429 or error.status >= 500
    return isinstance(error, Unreachable)


def patiently(ask: Callable[[], T], deadline: float | None = None) -> T:
    """What `ask` returns, which is called again while the cluster does not answer, until `deadline` (monotonic).

    Raises EngineError."""
    patience = Patience()
    while True:
        try:
            return ask()
        except EngineError as error:
            pause = patience.again(error)
            if deadline is not None and time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
