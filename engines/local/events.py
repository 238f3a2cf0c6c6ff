"""What a supervisor waits for: descriptors with something to read, children that end, SIGTERM, the clock."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable


class Events:
    """Of this process, which has no other use for SIGTERM and SIGCHLD. `asked`: SIGTERM has come."""

    def __init__(self) -> None:
        self.asked = False
        self._poller = select.poll()
        self._sources: dict[int, Callable[[], bool]] = {}
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        self.listen({self._wake: self._woken})
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def listen(self, sources: dict[int, Callable[[], bool]]) -> None:
        """Descriptors, each with what to call once it can be read; false means that nothing more will come of it."""
        self._sources.update(sources)
        for descriptor in sources:
            self._poller.register(descriptor, select.POLLIN)

    def forget(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            if self._sources.pop(descriptor, None) is not None:
                self._poller.unregister(descriptor)

    def wait(self, due: Iterable[float | None]) -> None:
        """Until something happens, or the first of the times `due` (of time.monotonic()) has come."""
        soonest = min((moment for moment in due if moment is not None), default=None)
        timeout = None if soonest is None else max(0.0, (soonest - time.monotonic()) * 1000 + 1)
        for descriptor, _ in self._poller.poll(timeout):
            if descriptor in self._sources and not self._sources[descriptor]():
                self.forget([descriptor])

    def _woken(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        return True

    def _on_term(self, *_: object) -> None:
        self.asked = True
