"""Hearing that something has changed: files of a folder (inotify, or looking four times a second), or by being told."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Protocol

_IN_CLOSE_WRITE, _IN_MOVED_TO, _IN_CREATE = 0x08, 0x80, 0x100
POLL_INTERVAL = 0.25  # seconds
FALLBACK_INTERVAL = 5.0  # seconds


class Watch(Protocol):
    """`descriptor` becomes readable at a change (call `drain`).

    Look again every `interval` seconds all the same: where `descriptor` is None nothing else tells of a change.
    """

    descriptor: int | None
    interval: float

    def drain(self) -> None: ...

    def close(self) -> None: ...


class FolderWatch:
    """Says when files in `folder` are written or replaced.

    With a descriptor `interval` is long: a folder on a network file system tells of no change made elsewhere.
    """

    def __init__(self, folder: str) -> None:
        self.descriptor = _inotify(folder)
        self.interval = POLL_INTERVAL if self.descriptor is None else FALLBACK_INTERVAL

    def drain(self) -> None:
        if self.descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self.descriptor, 65536):
                    pass

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class Bell:
    """Rung by other threads."""

    def __init__(self) -> None:
        self.descriptor: int | None = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.interval = FALLBACK_INTERVAL

    def ring(self) -> None:
        if self.descriptor is not None:
            with contextlib.suppress(OSError):  # closed meanwhile, or rung very often
                os.eventfd_write(self.descriptor, 1)

    def drain(self) -> None:
        if self.descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)

    def close(self) -> None:
        if self.descriptor is not None:
            descriptor, self.descriptor = self.descriptor, None
            os.close(descriptor)


def _inotify(folder: str) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        added = libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_CREATE)
    except AttributeError:
        return None
    if descriptor >= 0 and added < 0:
        os.close(descriptor)
        return None
    return descriptor if descriptor >= 0 else None
