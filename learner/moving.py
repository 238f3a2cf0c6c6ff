"""Shows the agent that a script moves: one that waits for a lost learner in a framework's call never will again.

A thread can't see by itself whether the main thread does. It has the interpreter call a function there, which happens
between two instructions of Python and not within a call, and looks whether it was called.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, List

from . import contract

_unanswered: List[bool] = []  # by the main thread


def _answer(_: Any) -> int:
    _unanswered.clear()
    return 0


_CALL: Any = None  # with another interpreter than CPython
try:
    import ctypes

    _ANSWER = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_answer)  # kept: it may be called at the very end
    _CALL = ctypes.pythonapi.Py_AddPendingCall
except (ImportError, AttributeError):
    pass


class Moving:
    """Until `end`, calls `tell` after each MOVES_INTERVAL in which the main thread moved, or `saving` said so.

    Where that can't be known, as of a script that trains in another thread, it always does.
    """

    def __init__(self, tell: Callable[[], None], saving: Callable[[], bool]) -> None:
        self._tell, self._saving = tell, saving
        self._known = _CALL is not None and threading.current_thread() is threading.main_thread()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="ffdl-moving", daemon=True).start()

    def end(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(contract.MOVES_INTERVAL):
            if not _unanswered or self._saving():
                self._tell()
            if self._known and not _unanswered:
                _unanswered.append(True)
                if _CALL(_ANSWER, None):  # too many such calls wait already
                    _unanswered.clear()
