"""Waiting for files to change: inotify, or a look four times a second where the kernel has none left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import time

POLL = 0.25
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_MODIFIED, _CLOSED, _MOVED_TO, _CREATED, _DELETED = 0x2, 0x8, 0x80, 0x100, 0x200
_libc = ctypes.CDLL(None, use_errno=True)


class Watcher:
    """Watches folders; `wait` returns once an entry of one of them came, went or was replaced.

    With `appends` also once a file was written to, open or not. Of a folder that is watched for some names, only files
    of these names count, once they are replaced.
    """

    def __init__(self, appends: bool = False) -> None:
        self._mask = _CLOSED | _MOVED_TO | _CREATED | _DELETED | (_MODIFIED if appends else 0)
        self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watches: dict[str, int] = {}
        self._names: dict[int, tuple[str, ...]] = {}  # by watch: what counts, () for everything
        self._changed: set[int] = set()
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLIN)

    def watch(self, folder: os.PathLike[str] | str, *names: str) -> None:
        path = os.fspath(folder)
        if path in self._watches or self._descriptor < 0:
            return
        mask = _MOVED_TO if names else self._mask
        number = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if number >= 0:
            self._watches[path], self._names[number] = number, names
        elif ctypes.get_errno() != 2:  # a folder that isn't there has nothing to say; anything else: poll
            os.close(self._descriptor)
            self._descriptor = -1

    def forget(self, folder: os.PathLike[str] | str) -> None:
        number = self._watches.pop(os.fspath(folder), None)
        if number is not None and self._descriptor >= 0:
            self._names.pop(number, None)
            _libc.inotify_rm_watch(self._descriptor, number)

    def wait(self, timeout: float | None) -> bool:
        """Waits at most `timeout` seconds; False if nothing was seen. Without inotify it may be True for nothing."""
        if self._descriptor < 0:
            self._poll.poll(min(POLL, timeout if timeout is not None else POLL) * 1000)
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._poll.poll(None if left is None else left * 1000):
                return False
            seen = False
            with contextlib.suppress(BlockingIOError):
                while events := os.read(self._descriptor, 65536):
                    seen = self._note(events) or seen
            if seen:
                return True

    def changed(self) -> set[str] | None:
        """The names (not the paths) of the folders of which `wait` has seen something since the last call.

        None: any of them may have changed.
        """
        found = self.news()
        self._changed = set()
        return found

    def news(self) -> set[str] | None:
        """What `changed` would say."""
        if self._descriptor < 0 or -1 in self._changed:  # the kernel has lost some
            return None
        return {os.path.basename(path) for path, number in self._watches.items() if number in self._changed}

    def _note(self, events: bytes) -> bool:
        """Whether one of them counts."""
        at, seen = 0, False
        while at < len(events):
            number, _, _, length = _EVENT.unpack_from(events, at)
            name = os.fsdecode(events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
            at += _EVENT.size + length
            if number < 0 or name in (self._names.get(number) or (name,)):
                self._changed.add(number)
                seen = True
        return seen

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
