"""SIGTERM as a halt for as long as a session lasts, and the sessions of a process that forks."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable, List


class Termination:
    """Until `end`, SIGTERM calls `terminated` (and what was called before). `forget` is called in forked children.

    Only a program's main thread may have it so; in others nothing happens.
    """

    def __init__(self, terminated: Callable[[], None], forget: Callable[[], None]) -> None:
        self._terminated, self.forget = terminated, forget
        self._previous: Any = None
        if threading.current_thread() is threading.main_thread():
            _watching.append(self)
            self._previous = signal.signal(signal.SIGTERM, self._on_signal)

    def end(self) -> None:
        """SIGTERM does again what it did before."""
        if self in _watching:
            _watching.remove(self)
            # == and not `is`: each look at a method makes a new object of it
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._terminated()
        if callable(self._previous):
            self._previous(number, frame)


_watching: List[Termination] = []


def _forget_in_child() -> None:
    """SIGTERM ends the child as ever."""
    for termination in reversed(_watching[:]):
        termination.forget()
        termination.end()


os.register_at_fork(after_in_child=_forget_in_child)
