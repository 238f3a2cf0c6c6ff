"""A container's memory limit: kept by the kernel in a cgroup where one can be made, else by looking now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import processes
from .cgroup import Cgroup, plan

INTERVAL = 0.25  # seconds between two looks
_SHARE = 0.02  # of one CPU that looking may take


class MemoryLimit:
    """The limit of `limit` bytes (None: none) on the container marked `mark`. `next_look`: when to call `exceeded`."""

    def __init__(self, limit: int | None, mark: str) -> None:
        self._limit = limit
        self.group: Cgroup | None = None if limit is None else plan(mark)
        self.next_look: float | None = None
        self._seen = False

    def apply(self, main: int) -> None:
        """To a process that has no children yet."""
        self._seen = False
        if self._limit is None:
            return
        if self.group is not None and self.group.create(self._limit):
            if self.group.add(main):
                return
            self.group.remove()
        self.group = None
        self.next_look = time.monotonic()

    def due(self) -> bool:
        return self.next_look is not None and time.monotonic() >= self.next_look

    def exceeded(self, members: Callable[[], list[int]]) -> bool:
        """Whether the container's processes, `members`, hold more than the limit now."""
        began = time.process_time()  # not the clock: who waits for a busy CPU takes none, and has to look all the same
        pids = members()
        limit = self._limit or 0
        self._seen = processes.resident(pids) > limit and processes.proportional(pids) > limit
        took = time.process_time() - began
        self.next_look = None if self._seen else time.monotonic() + max(INTERVAL, took / _SHARE)
        return self._seen

    def was_exceeded(self) -> bool:
        """Whether a process of the container was killed for it."""
        return self._seen or (self.group is not None and self.group.oom_kills() > 0)

    def kill(self) -> None:
        if self.group is not None:
            self.group.kill()

    def remove(self) -> None:
        if self.group is not None:
            self.group.remove()
