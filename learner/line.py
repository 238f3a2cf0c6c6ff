"""One end of a connection between a learner and a parameter server: bytes of arrays, sent and received side by side."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Iterable, Iterator, List, Optional

import numpy as np

from .errors import PeerLost
from .rendezvous import hang_up

SEND_MOST = 1 << 20  # bytes given to the kernel at a time
BLOCK_MOST = 1 << 20
WAKE_AT = 1 << 17  # bytes that are worth it
NEAR_MOST = 1 << 18  # bytes on their way between two processes of one machine: they stay in the processor's cache


class Line:
    """What was put goes out, what was wanted comes in, as far as either can at once. By TCP."""

    def __init__(self, connection: socket.socket, other: str) -> None:
        prepare(connection)
        self.connection, self._other = connection, other
        self._out: List[Iterator[memoryview]] = []
        self._sending: Optional[memoryview] = None
        self._into: Iterator[memoryview] = iter(())
        self._filling: Optional[memoryview] = None
        self._held = bytearray()
        self._wake_at = 1

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

    def put_blocks(self, views: Iterable[memoryview]) -> None:
        """As `put`, of what the other end takes block by block: it has said `blocks` when these come."""
        self.put(views)

    def want(self, views: Iterable[memoryview]) -> None:
        """Is to fill them with what comes next."""
        self._into = iter(views)
        self._next_in()

    def blocks(self) -> None:
        """What comes next was put by `put_blocks`."""

    def want_block(self, size: int) -> None:
        """Is to have the next `size` bytes, up to BLOCK_MOST, in one piece."""
        if len(self._held) < size:
            self._held = bytearray(size)
        self.want([memoryview(self._held)[:size]])

    def block(self, size: int) -> memoryview:
        """What was wanted by `want_block`, until something else is wanted."""
        return memoryview(self._held)[:size]

    def show(self, descriptor: int) -> bool:
        """Lets the other end see memory of this one's, if it can. Whether it can."""
        return False

    def shown(self) -> Optional[np.ndarray]:
        """The memory that the other end has shown, as bytes that are not to be changed."""
        return None

    def send(self) -> bool:
        """Whether bytes have gone. Raises PeerLost."""
        moved = False
        while self._sending is not None:
            gone = self._give(self._sending)
            if not gone:
                break
            moved = True
            self._sending = self._sending[gone:]
            if not self._sending.nbytes:
                self._next_out()
        return moved

    def receive(self) -> bool:
        """Whether bytes have come. Raises PeerLost."""
        moved = False
        while self._filling is not None:
            got = self._take(self._filling)
            if not got:
                break
            moved = True
            self._filling = self._filling[got:]
            if not self._filling.nbytes:
                self._next_in()
        return moved

    def events(self) -> Optional[int]:
        """What is to be polled `connection` for before it is tried again; None: it is worth a try at once."""
        if self._filling is not None:
            self._wake_at = wake_at(self.connection, min(self._filling.nbytes, WAKE_AT), self._wake_at)
        return (0 if self.filled else select.POLLIN) | (0 if self.idle else select.POLLOUT)

    def close(self) -> None:
        hang_up(self.connection)

    def _give(self, view: memoryview) -> int:
        """How many bytes have gone."""
        try:
            return self.connection.send(view[:SEND_MOST])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLost(f"{self._other} is gone: {error.strerror}") from None

    def _take(self, view: memoryview) -> int:
        """How many bytes have come."""
        try:
            got = self.connection.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLost(f"{self._other} is gone: {error.strerror}") from None
        if not got:
            raise PeerLost(f"{self._other} has hung up")
        return got

    def _next_out(self) -> None:
        self._sending = None
        while self._sending is None and self._out:
            self._sending = next((view for view in self._out[0] if view.nbytes), None)
            if self._sending is None:
                del self._out[0]

    def _next_in(self) -> None:
        self._filling = next((view for view in self._into if view.nbytes), None)


def prepare(connection: socket.socket) -> bool:
    """Has `connection` carry arrays, without blocking: what is sent goes at once, and little at a time is on its way
    within a machine. Whether that is where it ends."""
    connection.setblocking(False)
    with contextlib.suppress(OSError):  # no TCP, or gone
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        here, there = connection.getsockname()[0], connection.getpeername()[0]
        if here == there or here.startswith("127."):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_MOST)
            return True
    return False


def wake_at(connection: socket.socket, enough: int, before: int) -> int:
    """Who waits for `connection` wakes when `enough` bytes have come. `before` is what this has returned the last
    time, at first 1."""
    if enough != before:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, enough)
    return enough


def wait(lines: Iterable[Line], seconds: float, *others: socket.socket) -> bool:
    """Waits until one of the lines can move, or one of the other sockets can be read. Whether that has come."""
    poll = select.poll()
    for line in lines:
        events = line.events()
        if events is None:
            return True
        if events:
            poll.register(line.connection, events)
    for other in others:
        poll.register(other, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
