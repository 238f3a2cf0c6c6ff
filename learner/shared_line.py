"""A line by memory that both ends have in common, where they are on one machine: two rings of bytes, one each way."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import threading
from typing import Iterable, Iterator, List, Optional

import numpy as np

from . import memory
from .errors import PeerLost
from .line import BLOCK_MOST, Line
from .rendezvous import Place, present

RING = 1 << 22  # bytes on their way each way
COPY_MOST = 1 << 19  # bytes copied before the other end can see them: it works on these while more are copied
WAKE_AT = 1 << 20  # bytes that it is worth to wake the other end for, while this one goes on
_WRITTEN, _READ, _ASLEEP = 0, 64, 128  # places in what is before a ring: cache lines of their own
_BEFORE = 4096
_SIZE = 2 * (_BEFORE + RING)
_WAKE = b"w"


class SharedLine(Line):
    """As `Line`. `connection`, a Unix socket, is for waking the other end and for hearing of its end."""

    def __init__(self, connection: socket.socket, other: str, both: np.ndarray, first: bool) -> None:
        super().__init__(connection, other)
        rings = [both[at : at + _BEFORE + RING] for at in (0, _BEFORE + RING)]
        out, into = rings if first else rings[::-1]
        self._ring_out, self._ring_in = out[_BEFORE:].data, into[_BEFORE:].data
        self._written, self._read_there = _counter(out, _WRITTEN), _counter(out, _READ)
        self._written_there, self._read = _counter(into, _WRITTEN), _counter(into, _READ)
        self._asleep, self._asleep_there = _counter(out, _ASLEEP), _counter(into, _ASLEEP)
        self._slept, self._untold = False, 0
        self._block = 0  # bytes that are wanted in one piece: they stay in the ring
        self._shown: List[int] = []  # descriptors of memory that the other end has shown
        self._fence = threading.Lock()  # a lock is a barrier for the processor too

    @property
    def filled(self) -> bool:
        return self._waiting() >= self._block if self._block else super().filled

    def put_blocks(self, views: Iterable[memoryview]) -> None:
        self.put(self._aligned(views))

    def want(self, views: Iterable[memoryview]) -> None:
        self._let_go()
        super().want(views)

    def blocks(self) -> None:
        self._let_go()
        self._skip(self._read)

    def want_block(self, size: int) -> None:
        self._let_go()
        self._block = size

    def block(self, size: int) -> memoryview:
        at = int(self._read[0]) % RING
        return self._ring_in[at : at + size]

    def show(self, descriptor: int) -> bool:
        try:
            socket.send_fds(self.connection, [memory.MEMORY], [descriptor])
        except OSError:
            return False
        return True

    def shown(self) -> Optional[np.ndarray]:
        with contextlib.suppress(BlockingIOError):
            self._hear()
        return memory.mapped(self._shown[-1], mmap.ACCESS_READ) if self._shown else None

    def close(self) -> None:
        super().close()
        while self._shown:
            os.close(self._shown.pop())

    def events(self) -> Optional[int]:
        self._wake()
        idle, filled = self.idle, self.filled
        if idle and filled:
            return 0
        self._slept, self._asleep[0] = True, 1
        with self._fence:  # the other end is told before it is looked what it has done meanwhile
            may_move = (not idle and self._room()) or (not filled and self._waiting() >= (self._block or 1))
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
        return max(0, RING - int(self._written[0]) + int(self._read_there[0]))

    def _waiting(self) -> int:
        return max(0, int(self._written_there[0]) - int(self._read[0]))

    def _aligned(self, views: Iterable[memoryview]) -> Iterator[memoryview]:
        self._skip(self._written)
        yield from views

    def _skip(self, place: np.ndarray) -> None:
        """To where the next blocks begin, at both ends: so none lies partly at the ring's end, partly at its start."""
        with self._fence:
            place[0] += -int(place[0]) % BLOCK_MOST

    def _let_go(self) -> None:
        """The block that was there has been used."""
        size, self._block = self._block, 0
        if size:
            with self._fence:
                self._read[0] += size
            self._tell(size)

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
            self._hear()
        except BlockingIOError:
            return
        if self.filled or self._waiting() < (self._block or 1):
            raise PeerLost(f"{self._other} is gone")

    def _hear(self) -> None:
        """What has come beside the rings, until the other end is gone. Raises BlockingIOError while it is not."""
        with contextlib.suppress(ConnectionError):
            while True:
                said, descriptors, _, _ = socket.recv_fds(self.connection, 1 << 10, 1)
                self._shown += descriptors
                if not said:
                    return

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
        descriptor = memory.make(_SIZE)
        try:
            socket.send_fds(connection, [memory.MEMORY], [descriptor])
            return SharedLine(connection, other, memory.mapped(descriptor), True)
        finally:
            os.close(descriptor)
    except (OSError, AttributeError):  # it is elsewhere, or this is no Linux
        connection.close()
        return None


def accept(connection: socket.socket, other: str) -> SharedLine:
    """The other end of a `shared_line`. Raises OSError."""
    connection.settimeout(5.0)
    _, descriptors, _, _ = socket.recv_fds(connection, len(memory.MEMORY), 1)
    if not descriptors:
        raise ConnectionError("it has no memory to share")
    try:
        if os.fstat(descriptors[0]).st_size != _SIZE:
            raise ConnectionError("it shares memory of another size")
        return SharedLine(connection, other, memory.mapped(descriptors[0]), False)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _too_late() -> None:
    raise TimeoutError("it does not answer")
