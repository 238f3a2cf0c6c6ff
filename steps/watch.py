"""Hearing that something in a folder was replaced: inotify, or, where it is missing, looking four times a second."""

from __future__ import annotations

import contextlib
import ctypes
import os

_IN_CLOSE_WRITE, _IN_MOVED_TO, _IN_CREATE = 0x08, 0x80, 0x100
POLL_INTERVAL = 0.25  # seconds


class Watch:
    """Says when files in `folder` are written or replaced.

    `descriptor` becomes readable then (call `drain`); where it is None, look again every `interval` seconds. With a
    descriptor `interval` is long: a folder on a network file system tells of no change made elsewhere.
    """

    def __init__(self, folder: str) -> None:
        self.descriptor = _inotify(folder)
        self.interval = POLL_INTERVAL if self.descriptor is None else 5.0

    def drain(self) -> None:
        if self.descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self.descriptor, 65536):
                    pass

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


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
