"""Collectives over a ring of connections: each rank sends to the next and receives from the one before.

An all-reduce is a reduce-scatter and an all-gather of n chunks, 2 (n-1)/n of the bytes each way per rank, which is the
least there can be (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
It flows: a block is sent on as soon as it has been received and added, no rank waits for a whole chunk.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Callable, List, Optional

import numpy as np

from .collective import ALL_GATHER, BARRIER, BROADCAST, LOOK_EVERY, NONE, OPERATIONS, add, chunks, finish, head, said
from .errors import Mismatch, PeerLost
from .line import WAKE_AT, prepare, wake_at
from .rendezvous import hang_up

BLOCK = 1 << 19  # bytes received before they are added: they are still in the processor's cache then
FAR_WAKE_AT = 1 << 20  # bytes worth a wake-up where a network is slower than processors: these can compute meanwhile
SEND_MOST = 1 << 20  # bytes given to the kernel at a time: in between it is looked at what has come


class Ring:
    """Rank `rank` of `size`, at least 2. Its arrays are contiguous. `look` is called twice a second while a collective
    waits, and may raise what is to end it. One caller at a time; after an error it is of no more use. `number`: of the
    last collective."""

    def __init__(
        self, rank: int, size: int, following: socket.socket, previous: socket.socket, look: Callable[[], None]
    ) -> None:
        self.rank, self.size = rank, size
        self._following, self._previous, self._look = following, previous, look
        self.number = 0
        near = all([prepare(following), prepare(previous)])
        self._worth = WAKE_AT if near else FAR_WAKE_AT
        self._block = np.empty(BLOCK, np.uint8)
        self._wake_at = 1

    def all_reduce(self, array: np.ndarray, operation: str) -> None:
        """`array` (n,) becomes its sum, mean or maximum over all ranks, with the same bits at each of them.

        Chunk c is added up in the order of ranks c, c+1, ... Raises PeerLost, Mismatch.
        """
        parts = chunks(len(array), self.size)
        order = [array[parts[(self.rank - step) % self.size]] for step in range(2 * self.size - 1)]
        out = [_bytes(part) for part in order[:-1]]
        into: List[_Into] = []
        for step, part in enumerate(order[1:], 1):
            if step < self.size:
                whole = self.size if step == self.size - 1 else 0
                into.append(_Adding(part, operation, whole, self._block))
            else:
                into.append(_Into(_bytes(part)))
        self._flow(self._head(OPERATIONS.index(operation), array), out, into, out[0].nbytes)

    def all_gather(self, rows: np.ndarray) -> None:
        """Row r of `rows` (size, n) is rank r's, and comes to all. Raises PeerLost, Mismatch."""
        order = [_bytes(rows[(self.rank - step) % self.size]) for step in range(self.size)]
        self._flow(self._head(ALL_GATHER, rows), order[:-1], [_Into(row) for row in order[1:]], order[0].nbytes)

    def broadcast(self, array: np.ndarray, root: int) -> None:
        """`array` (n,) of rank `root` comes to all. Raises PeerLost, Mismatch."""
        whole = _bytes(array)
        out = [] if (self.rank + 1) % self.size == root else [whole]
        into: List[_Into] = [] if self.rank == root else [_Into(whole)]
        self._flow(self._head(BROADCAST + root, array), out, into, whole.nbytes if self.rank == root else 0)

    def barrier(self) -> None:
        """Returns when all ranks have called it. Raises PeerLost, Mismatch."""
        ones = [_bytes(np.zeros(1, np.uint8)) for _ in range(2 * self.size - 2)]
        self._flow(self._head(BARRIER, np.empty(0)), ones, [_Into(one) for one in ones], 1)

    def look(self) -> None:
        """Between two collectives: raises PeerLost where a neighbour is gone, or what the world's `look` raises."""
        for connection in (self._following, self._previous):
            with contextlib.suppress(BlockingIOError):
                try:
                    gone = not connection.recv(1, socket.MSG_PEEK)
                except ConnectionError:
                    gone = True
                if gone:
                    raise PeerLost("a neighbour in the ring is gone")
        self._look()

    def finish(self) -> None:
        """This rank calls no more: what the next one still calls raises Mismatch there."""
        with contextlib.suppress(OSError):  # it has left already
            self._following.send(self._head(NONE, np.empty(0)))

    def close(self) -> None:
        for connection in (self._following, self._previous):
            hang_up(connection)

    def _head(self, kind: int, array: np.ndarray) -> bytes:
        self.number += 1
        return head(self.number, kind, array)

    def _flow(self, begun: bytes, out: List[memoryview], into: List[_Into], lead: int) -> None:
        """Sends `out`: `lead` bytes of it at once, then as many as have come and are finished in `into`."""
        views = iter([memoryview(begun), *(view for view in out if view.nbytes)])
        filled = [sink for sink in into if sink.missing]
        sinks = iter([_Head(begun, filled[0].wanted if filled else 0), *filled])
        view: Optional[memoryview] = next(views)
        sink: Optional[_Into] = next(sinks)
        may_send = len(begun) + lead
        while view is not None or sink is not None:
            got, gone = -1, -1
            if sink is not None:
                got = sink.receive(self._previous)
                may_send += max(got, 0)
                if not sink.missing:
                    sink = next(sinks, None)
            if view is not None and may_send:
                gone = _send(self._following, view[: min(may_send, SEND_MOST)], more=view.obj is begun and lead > 0)
                may_send -= max(gone, 0)
                view = view[max(gone, 0) :]
                if not view.nbytes:
                    view = next(views, None)
            if got < 0 and gone < 0:
                self._wait(0 if sink is None else sink.wanted, view is not None and may_send > 0)

    def _wait(self, wanted: int, writing: bool) -> None:
        poll = select.poll()
        if wanted:
            self._wake_at = wake_at(self._previous, min(wanted, self._worth), self._wake_at)
            poll.register(self._previous, select.POLLIN)
        if writing:
            poll.register(self._following, select.POLLOUT)
        if not poll.poll(1000 * LOOK_EVERY):
            self._look()  # and then at what has come, which may be less, from who calls something else


class _Into:
    """Bytes that go where they belong. `missing`: how many there are still to come."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.missing = view.nbytes

    @property
    def wanted(self) -> int:
        """Bytes that something can be done with at once when they have come."""
        return self.missing

    def receive(self, connection: socket.socket) -> int:
        """How many bytes are finished, by which others may be sent on; -1: nothing has come."""
        got = _receive(connection, self._view[-self.missing :])
        self.missing -= max(got, 0)
        return got


class _Head(_Into):
    """The head of the collective that the rank before calls: it must be ours."""

    def __init__(self, own: bytes, then: int) -> None:
        """`then`: what is wanted after it."""
        self._own, self._theirs, self._then = own, bytearray(len(own)), then
        super().__init__(memoryview(self._theirs))

    @property
    def wanted(self) -> int:
        return self.missing + self._then

    def receive(self, connection: socket.socket) -> int:
        got = super().receive(connection)
        if not self.missing and self._theirs != self._own:
            raise Mismatch(f"this learner calls {said(self._own)}, the one before it {said(bytes(self._theirs))}")
        return min(got, 0)


class _Adding(_Into):
    """Bytes of elements that are added to those of `part`, block by block, by way of `block`. With these it is the
    total of `whole` ranks, if that is not 0."""

    def __init__(self, part: np.ndarray, operation: str, whole: int, block: np.ndarray) -> None:
        super().__init__(_bytes(part))
        self._part, self._operation, self._whole = part, operation, whole
        size = part.dtype.itemsize
        self._block = block[: len(block) // size * size].view(part.dtype)
        self._at = self._filled = 0  # elements that are added; bytes in the block

    @property
    def wanted(self) -> int:
        return min(self.missing, self._block.nbytes) - self._filled

    def receive(self, connection: socket.socket) -> int:
        part = self._part[self._at : self._at + len(self._block)]
        got = _receive(connection, _bytes(self._block)[self._filled : part.nbytes])
        if got < 0:
            return -1
        self._filled += got
        if self._filled < part.nbytes:
            return 0
        add(self._operation, part, self._block[: len(part)])
        if self._whole:
            finish(self._operation, part, self._whole)
        self._at += len(part)
        self._filled = 0
        self.missing -= part.nbytes
        return part.nbytes


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _send(connection: socket.socket, data: memoryview, more: bool) -> int:
    """How many bytes are gone; -1: there is no room for any. `more`: others are about to follow."""
    try:
        return connection.send(data, socket.MSG_MORE if more else 0)
    except BlockingIOError:
        return -1
    except OSError as error:
        raise PeerLost(f"the next learner is gone: {error.strerror}") from None


def _receive(connection: socket.socket, into: memoryview) -> int:
    try:
        got = connection.recv_into(into)
    except BlockingIOError:
        return -1
    except OSError as error:
        raise PeerLost(f"the learner before is gone: {error.strerror}") from None
    if not got:
        raise PeerLost("the learner before is gone")
    return got
