"""What a learner and a parameter server say to each other, once each has proven that it belongs to the world.

    learner  OPENS, JSON       which parameters, and what is to be done with them
    server   EMPTY             it has none yet: the first rank is to give them
    learner  SETS, values      its part of them
    server   HAS, values       its part of the parameters
    learner  SENDS, values     its part of gradients or parameters, as often as it likes
    server   HAS, values       its part of the parameters after that, which begins to come while others are still sent
    learner  SAVES             the server is to keep what it has, as that of step `number`
    server   REFUSES, text     and nothing after that

Each begins with a head of fixed size; how many values there are has been said at the beginning, and text is bounded.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Iterable, Iterator, List, Mapping, Optional

import numpy as np

from .collective import chunks
from .errors import PeerLost
from .rendezvous import hang_up

OPENS, SETS, SENDS, SAVES, EMPTY, HAS, REFUSES = range(1, 8)
HEAD = struct.Struct("=IIQd")  # what it is, bytes of its text, a number, a learning rate (not a number: as it was)
TEXT_MOST = 4096  # bytes
SERVERS = 1 << 20  # the first server's rank, where all of a world need one
BLOCK = 1 << 18  # bytes that a server works on at a time: they are still in the processor's cache then
SEND_MOST = 1 << 20  # bytes given to the kernel at a time


class Line:
    """One end of a connection: what was put goes out, what was wanted comes in, as far as either can at once."""

    def __init__(self, connection: socket.socket, other: str) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # no TCP
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self._other = connection, other
        self._out: List[Iterator[memoryview]] = []
        self._sending: Optional[memoryview] = None
        self._into: Iterator[memoryview] = iter(())
        self._filling: Optional[memoryview] = None

    @property
    def idle(self) -> bool:
        """Nothing waits to be sent."""
        return self._sending is None

    @property
    def filled(self) -> bool:
        """All that was wanted has come."""
        return self._filling is None

    def put(self, views: Iterable[memoryview]) -> None:
        """Is to send them after what was put before. Each is asked for when the one before has gone."""
        self._out.append(iter(views))
        if self._sending is None:
            self._next_out()

    def want(self, views: Iterable[memoryview]) -> None:
        """Is to fill them with what comes next."""
        self._into = iter(views)
        self._next_in()

    def send(self) -> bool:
        """Whether bytes have gone. Raises PeerLost."""
        moved = False
        while self._sending is not None:
            try:
                gone = self.connection.send(self._sending[:SEND_MOST])
            except BlockingIOError:
                break
            except OSError as error:
                raise PeerLost(f"{self._other} is gone: {error.strerror}") from None
            moved = True
            self._sending = self._sending[gone:]
            if not self._sending.nbytes:
                self._next_out()
            elif gone < SEND_MOST:
                break
        return moved

    def receive(self) -> bool:
        """Whether bytes have come. Raises PeerLost."""
        moved = False
        while self._filling is not None:
            try:
                got = self.connection.recv_into(self._filling)
            except BlockingIOError:
                break
            except OSError as error:
                raise PeerLost(f"{self._other} is gone: {error.strerror}") from None
            if not got:
                raise PeerLost(f"{self._other} has hung up")
            moved = True
            self._filling = self._filling[got:]
            if not self._filling.nbytes:
                self._next_in()
        return moved

    def close(self) -> None:
        hang_up(self.connection)

    def _next_out(self) -> None:
        while self._out:
            self._sending = next((view for view in self._out[0] if view.nbytes), None)
            if self._sending is not None:
                return
            del self._out[0]

    def _next_in(self) -> None:
        self._filling = next((view for view in self._into if view.nbytes), None)


class Row:
    """Named arrays as one row of elements, of which each of `servers` has an even part, whatever the arrays' sizes.

    Raises TypeError, ValueError for what can't be one.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], servers: int) -> None:
        if not arrays:
            raise ValueError("there are no parameters")
        kinds = {array.dtype for array in arrays.values()}
        if len(kinds) > 1 or not all(kind.kind == "f" and kind.itemsize <= 8 for kind in kinds):
            words = " and ".join(sorted(map(str, kinds)))
            raise TypeError(f"parameters are arrays of one type, float16, float32 or float64, not of {words}")
        for name, array in arrays.items():
            if not (array.flags.c_contiguous and array.flags.writeable):
                raise ValueError(f"{name} is to be changed in place: it must be a writable array, of one piece")
        (self.dtype,) = kinds
        self.shapes = {name: array.shape for name, array in arrays.items()}
        self.parts = chunks(sum(array.size for array in arrays.values()), servers)

    def of(self, arrays: Mapping[str, np.ndarray], server: int) -> List[np.ndarray]:
        """What of `arrays`, which have these names and shapes, goes to `server`: views, in order."""
        part, at = self.parts[server], 0
        found = []
        for name in self.shapes:
            flat = arrays[name].reshape(-1)
            begin, end = max(part.start - at, 0), min(part.stop - at, len(flat))
            if begin < end:
                found.append(flat[begin:end])
            at += len(flat)
        return found


def as_bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def head(what: int, text: bytes = b"", number: int = 0, rate: float = float("nan")) -> memoryview:
    """A message's beginning, with its text."""
    return memoryview(HEAD.pack(what, len(text), number, rate) + text)
