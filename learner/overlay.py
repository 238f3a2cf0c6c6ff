"""The peer overlay: collectives among the learners of a world, without a server between them."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from .buckets import Buckets
from .collective import LOOK_EVERY, OPERATIONS
from .errors import Mismatch, PeerLost
from .rendezvous import Place, admit, connect
from .ring import Ring
from .shared import Shared

__all__ = ["Buckets", "Mismatch", "Overlay", "PeerLost", "Pending", "Place"]

Transport = Union[Ring, Shared]


class Pending:
    """A collective that is on its way."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def wait(self) -> None:
        """Returns when the result is there. Raises PeerLost, Mismatch."""
        self._future.result()


class Overlay:
    """Rank `rank` of `size` learners. All are to call the same collectives, with the same shapes, in the same order.

    `transport` is "shared memory" where all are on one machine, else "tcp", and "none" for one alone. Once another is
    gone every call raises PeerLost; where they do not call the same, Mismatch. Calls from several threads must be put
    in order by the caller.
    """

    def __init__(
        self,
        place: Place,
        addresses: Sequence[Tuple[str, int]],
        listener: Optional[socket.socket] = None,
        look: Callable[[], None] = lambda: None,
        shared_memory: bool = True,
    ) -> None:
        """Meets the others: `addresses` are those of all ranks, `listener` is a socket that listens at the own one. One
        alone needs none.

        `look` is called twice a second while this or a collective waits for others, and may raise what is to end it.
        Without `shared_memory` it is TCP on one machine, too.
        """
        self.rank, self.size = place.rank, len(addresses)
        self._ring: Optional[Ring] = None
        self._shared: Optional[Shared] = None
        self._worker: Optional[ThreadPoolExecutor] = None
        self._last: Optional[Future[None]] = None
        self._error: Optional[BaseException] = None
        self._closed = False
        if self.size > 1 and listener is not None:
            self._ring = _ring(place, addresses, listener, look)
            try:
                if shared_memory:
                    self._shared = _shared(place, self._ring, look)
                    self._ring.number = 0  # its next collective is the caller's first
            except BaseException:
                self._ring.close()
                raise

    @property
    def transport(self) -> str:
        return "shared memory" if self._shared else "tcp" if self._ring else "none"

    def all_reduce(self, array: Any, operation: str = "sum") -> None:
        """`array` becomes, in place, the "sum", "mean" or "max" of all learners' arrays, with the same bits at each.

        `array` is a writable NumPy array of numbers, or has the buffer protocol. The order of adding depends on its
        length and the number of learners alone. Raises TypeError, ValueError before anything is sent.
        """
        own = _writable(array, operation)
        self._call(lambda transport: _reduce(transport, own, operation))

    def all_reduce_async(self, array: Any, operation: str = "sum") -> Pending:
        """As `all_reduce`, while the caller goes on computing, but not with `array`, until it has waited."""
        own = _writable(array, operation)
        return Pending(self._submit(lambda transport: _reduce(transport, own, operation)))

    def broadcast(self, array: Any, root: int = 0) -> None:
        """`array` becomes, in place, what it is at learner `root`."""
        if not 0 <= root < self.size:
            raise ValueError(f"there is no rank {root} among {self.size}")
        own = _writable(array)
        self._call(lambda transport: _in_place(own, lambda flat: transport.broadcast(flat, root)))

    def all_gather(self, array: Any) -> np.ndarray:
        """All learners' arrays (size, *shape), in the order of ranks."""
        own = _array(array)
        rows = np.empty((self.size, *own.shape), own.dtype)
        rows[self.rank] = own
        self._call(lambda transport: transport.all_gather(rows.reshape(self.size, -1)))
        return rows

    def barrier(self) -> None:
        """Returns when all learners have called it."""
        self._call(lambda transport: transport.barrier())

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = np.float32) -> np.ndarray:
        """An array for use in `all_reduce`, in shared memory where that is the transport: then, if all learners' arrays
        are such ones, nothing is copied.

        All learners are to make the same ones, in the same order among their collectives, and keep them: the memory is
        theirs to the end. Raises OSError, at all of them, where there is no room at one; PeerLost, Mismatch.
        """
        shared, kind = self._shared, np.dtype(dtype)
        if shared is None:
            return np.empty(shape, kind)
        length, made = int(np.prod(shape)), []
        self._call(lambda _: made.append(shared.empty(length, kind)))  # the others are met for it: one at a time
        if made[0] is None:
            raise OSError(errno.ENOMEM, f"no memory in common for {length * kind.itemsize} bytes of each learner")
        return made[0].reshape(shape)

    def buckets(self, like: Mapping[str, Any], operation: str = "mean") -> Buckets:
        """Arrays of zeros with the names and shapes of `like`, for gradients that travel while others are computed.

        `like` are a model's, of one type, in the order in which it uses them: gradients are ready in the opposite one.
        All learners are to make the same ones, and keep them: their memory is, as that of `empty`, theirs to the end.
        Raises TypeError, ValueError before anything is sent; Mismatch, OSError, PeerLost.
        """
        if not isinstance(like, Mapping):
            raise TypeError(f"buckets are made like a dict of arrays, by name, and not like a {type(like).__name__}")
        kinds = {np.asarray(array).dtype for array in like.values()} or {np.dtype(np.float32)}
        if len(kinds) > 1:
            raise TypeError(f"the arrays of buckets are of one type, and not {', '.join(sorted(map(str, kinds)))}")
        kind = kinds.pop()
        _writable(np.empty(0, kind), operation)
        return Buckets(self, like, kind, operation)

    def finish(self) -> None:
        """Leaves, having done all its work: what others still call raises Mismatch there, and says so.

        What is still on its way is done first. Raises PeerLost, Mismatch where it can't be.
        """
        if self._last is not None:
            self._last.result()
        transport = self._shared or self._ring
        if transport is not None and self._error is None:
            transport.finish()
        self.close()

    def close(self) -> None:
        """Leaves: the others' next collective raises PeerLost, and here what is still on its way."""
        self._closed = True
        for transport in (self._shared, self._ring):
            if transport is not None:
                transport.close()
        if self._worker is not None:
            self._worker.shutdown()

    def __enter__(self) -> "Overlay":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, collective: Callable[[Transport], None]) -> None:
        if self._last is not None and not self._last.done():
            self._submit(collective).result()
        else:
            self._run(collective)

    def _submit(self, collective: Callable[[Transport], None]) -> "Future[None]":
        if self._closed:
            raise PeerLost("this learner has left the others")
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "overlay")
        self._last = self._worker.submit(self._run, collective)
        return self._last

    def _run(self, collective: Callable[[Transport], None]) -> None:
        if self._error is not None:
            raise self._error
        transport = self._shared or self._ring
        if transport is None:
            return
        try:
            collective(transport)
        except BaseException as error:
            self._error = error
            raise


def _reduce(transport: Transport, array: np.ndarray, operation: str) -> None:
    _in_place(array, lambda flat: transport.all_reduce(flat, operation))


def _in_place(array: np.ndarray, collective: Callable[[np.ndarray], None]) -> None:
    flat = np.ascontiguousarray(array).reshape(-1)
    collective(flat)
    if not np.shares_memory(flat, array):  # its elements do not lie side by side
        array[...] = flat.reshape(array.shape)


def _array(value: Any) -> np.ndarray:
    array = value if isinstance(value, np.ndarray) else np.asarray(memoryview(value))
    if array.dtype.kind not in "biufc":
        raise TypeError(f"an array of {array.dtype} can't be sent: numbers can")
    return array


def _writable(value: Any, operation: str = "sum") -> np.ndarray:
    array = _array(value)
    if not array.flags.writeable:
        raise ValueError("the array can't be written to, and the result is to go there")
    if operation not in OPERATIONS:
        raise ValueError(f"there is no operation {operation!r}: one of {', '.join(OPERATIONS)}")
    if operation == "mean" and array.dtype.kind not in "fc":
        raise TypeError(f"the mean of {array.dtype} is no {array.dtype}: take the sum, or an array of floats")
    return array


# --- finding the others -----------------------------------------------------------------------------------------------


def _ring(
    place: Place, addresses: Sequence[Tuple[str, int]], listener: socket.socket, look: Callable[[], None]
) -> Ring:
    size = len(addresses)
    following, previous = (place.rank + 1) % size, (place.rank - 1) % size
    given_up = threading.Event()

    def go_on() -> None:
        if given_up.is_set():
            raise PeerLost("this learner has given up")

    found: Dict[int, socket.socket] = {}
    with ThreadPoolExecutor(1) as doorkeeper:
        coming = doorkeeper.submit(admit, place, listener, [previous], go_on)
        try:
            found[following] = connect(place, following, addresses[following], look)
            while not coming.done():
                look()
                wait([coming], LOOK_EVERY)
        except BaseException:
            given_up.set()
            for connection in found.values():
                connection.close()
            raise
    return Ring(place.rank, size, found[following], coming.result()[previous], look)


def _shared(place: Place, ring: Ring, look: Callable[[], None]) -> Optional[Shared]:
    """The way by memory, where all are on one machine and in one network namespace; agreed by way of the ring."""
    machines = np.empty((ring.size, 32), np.uint8)
    machines[ring.rank] = np.frombuffer(_machine(), np.uint8)
    ring.all_gather(machines)
    if (machines != machines[0]).any():
        return None
    names = [b"\0ffdl-" + place.prove(b"memory of %d" % rank).hex().encode()[:40] for rank in range(ring.size)]
    links: Dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(names[ring.rank])
        listener.listen(ring.size)
        ring.barrier()
        try:
            for lower in range(ring.rank):
                links[lower] = connect(place, lower, names[lower], ring.look)
            links.update(admit(place, listener, range(ring.rank + 1, ring.size), ring.look))
            return Shared(ring.rank, links, look)
        except BaseException:
            for link in links.values():
                link.close()
            raise


def _machine() -> bytes:
    """The same for those that can share memory: they run on one kernel and see one another's abstract Unix sockets."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as stream:
            kernel = stream.read()
        network = os.stat("/proc/self/ns/net").st_ino
        os.close(os.memfd_create("ffdl"))
    except (OSError, AttributeError):  # no Linux, or an old one
        return os.urandom(32)
    return hashlib.sha256(b"%s %d %d" % (kernel, network, os.getuid())).digest()
