"""A container's output, from its pipe into a file, with the time (RFC 3339, UTC) and a space before each line."""

from __future__ import annotations

import os
import time
from pathlib import Path

_CHUNK = 1 << 16
_LAST = 1 << 24  # at most this much is taken over once the writers should be gone


class PodLog:
    """Holds nothing back: what arrives is in the file at once, lines of any length, whatever bytes they are made of.

    The last `keep` bytes of it are `kept` beside.
    """

    def __init__(self, pipe: int, path: Path, keep: int = 0) -> None:
        self.pipe, self._keep, self.kept = pipe, keep, b""
        os.set_blocking(pipe, False)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._line_start = True

    def pump(self) -> bool:
        """Moves what one read yields. False at the end of the pipe."""
        try:
            data = os.read(self.pipe, _CHUNK)
        except BlockingIOError:
            return True
        if data:
            self._take(data)
        return bool(data)

    def close(self) -> None:
        """Takes what is left in the pipe, without waiting for whoever still holds its other end."""
        taken = 0
        while taken < _LAST:
            try:
                data = os.read(self.pipe, _CHUNK)
            except BlockingIOError:
                break
            if not data:
                break
            taken += len(data)
            self._take(data)
        os.close(self.pipe)
        os.close(self._file)

    def _take(self, data: bytes) -> None:
        if self._keep:
            self.kept = (self.kept + data)[-self._keep :]
        self._write(self._stamped(data, time.time()))

    def _stamped(self, data: bytes, now: float) -> bytes:
        whole = int(now)
        micros = int((now - whole) * 1e6)
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{micros:06d}Z ".encode()
        ends = data.endswith(b"\n")
        text = data[: -1 if ends else None].replace(b"\n", b"\n" + stamp) + (b"\n" if ends else b"")
        text = stamp + text if self._line_start else text
        self._line_start = ends
        return text

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._file, view) :]
            except OSError:  # the disk is full: the pod goes on, this much of its output is lost
                return
