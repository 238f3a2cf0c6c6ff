"""A line by memory that both ends have in common, where they are on one machine: two rings of bytes, one each way."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import threading
from typing import Optional

import numpy as np

from .errors import PeerLost
from .line import Line
from .rendezvous import Place, present

RING = 1 << 22  # bytes on their way each way
COPY_MOST = 1 << 18  # bytes copied before the other end can see them: it works on these while more are copied
WAKE_AT = 1 << 20  # bytes that it is worth to wake the other end for, while this one goes on
_WRITTEN, _READ, _ASLEEP = 0, 64, 128  # places in what is before a ring: cache lines of their own
_BEFORE = 4096
_SIZE = 2 * (_BEFORE + RING)
_MEMORY, _WAKE = b"m", b"w"


class SharedLine(Line):
    """As `Line`. `connection`, a Unix socket, is for waking the other end and for hearing of its end."""

    def __init__(self, connection: socket.socket, other: str, memory: np.ndarray, first: bool) -> None:
        super().__init__(connection, other)
        rings = [memory[at : at + _BEFORE + RING] for at in (0, _BEFORE + RING)]
        out, into = rings if first else rings[::-1]
        self._ring_out, self._ring_in = out[_BEFORE:].data, into[_BEFORE:].data
        self._written, self._read_there = _counter(out, _WRITTEN), _counter(out, _READ)
        self._written_there, self._read = _counter(into, _WRITTEN), _counter(into, _READ)
        self._asleep, self._asleep_there = _counter(out, _ASLEEP), _counter(into, _ASLEEP)
        self._slept, self._untold = False, 0
        self._fence = threading.Lock()  # a lock is a barrier for the processor too

    def events(self) -> Optional[int]:
        self._wake()
        if self.idle and self.filled:
            return 0
        self._slept, self._asleep[0] = True, 1
        with self._fence:  # the other end is told before it is looked what it has done meanwhile
            may_move = (not self.idle and self._room()) or (not self.filled and self._waiting())
        if may_move:
            return None
        return select.POLLIN

    def send(self) -> bool:
        self._awake()
        return super().send()

    def receive(self) -> bool:
        self._awake()
        return super().receive()

    def _room(self) -> int:
        return RING - int(self._written[0] - self._read_there[0])

    def _waiting(self) -> int:
        return int(self._written_there[0] - self._read[0])

    def _give(self, view: memoryview) -> int:
        at = int(self._written[0]) % RING
        size = min(self._room(), len(view), RING - at, COPY_MOST)
        self._ring_out[at : at + size] = view[:size]
        if size:
            with self._fence:
                self._written[0] += size
            self._tell(size)
        return size

    def _take(self, view: memoryview) -> int:
        at = int(self._read[0]) % RING
        size = min(self._waiting(), len(view), RING - at, COPY_MOST)
        if size:
            view[:size] = self._ring_in[at : at + size]
            with self._fence:
                self._read[0] += size
            self._tell(size)
        return size

    def _awake(self) -> None:
        """Drops what has woken this end. Raises PeerLost where the other one is gone and has left nothing to read."""
        if not self._slept:
            return
        self._slept, self._asleep[0] = False, 0
        try:
            while True:
                if not self.connection.recv(1 << 10):
                    break
        except BlockingIOError:
            return
        except OSError:
            pass
        if self.filled or not self._waiting():
            raise PeerLost(f"{self._other} is gone")

    def _tell(self, size: int) -> None:
        self._untold += size
        if self._untold >= WAKE_AT:
            self._wake()

    def _wake(self) -> None:
        """The other end, if it sleeps, of what has moved."""
        if not self._untold:
            return
        self._untold = 0
        with self._fence:
            asleep = self._asleep_there[0]
        if asleep:
            self._asleep_there[0] = 0  # once is enough
            with contextlib.suppress(OSError):  # it is gone, which is heard of in time, or has not heard all yet
                self.connection.send(_WAKE)


def _counter(ring: np.ndarray, at: int) -> np.ndarray:
    return ring[at : at + 8].view(np.uint64)


# --- how both ends come to it -----------------------------------------------------------------------------------------


def name(place: Place, rank: int) -> bytes:
    """Where `rank` of the world listens, for others on its machine: a name that is no file's."""
    return b"\0ffdl-" + place.prove(b"line to %d" % rank).hex().encode()[:40]


def shared_line(place: Place, to: int, other: str) -> Optional[SharedLine]:
    """A line to `to`, which is there, if it is on this machine."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(5.0)
        connection.connect(name(place, to))
        present(connection, place, to, _too_late)
        descriptor = os.memfd_create("ffdl", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)  # now, not by a signal when it is touched
            socket.send_fds(connection, [_MEMORY], [descriptor])
            return SharedLine(connection, other, _mapped(descriptor), True)
        finally:
            os.close(descriptor)
    except (OSError, AttributeError):  # it is elsewhere, or this is no Linux
        connection.close()
        return None


def accept(connection: socket.socket, other: str) -> SharedLine:
    """The other end of a `shared_line`. Raises OSError."""
    connection.settimeout(5.0)
    _, descriptors, _, _ = socket.recv_fds(connection, len(_MEMORY), 1)
    if not descriptors:
        raise ConnectionError("it has no memory to share")
    try:
        if os.fstat(descriptors[0]).st_size != _SIZE:
            raise ConnectionError("it shares memory of another size")
        return SharedLine(connection, other, _mapped(descriptors[0]), False)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _too_late() -> None:
    raise TimeoutError("it does not answer")


def _mapped(descriptor: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(descriptor, _SIZE), np.uint8)
