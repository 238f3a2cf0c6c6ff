"""How learners come to a parameter server: by TCP, and those on its machine by memory in common."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from typing import Any, Iterator, List, Tuple

from .errors import PeerLost
from .line import Line
from .rendezvous import Place, arrivals
from .shared_line import accept, name


class Doorkeeper:
    """Lets ranks below `size` of a world in, in a thread of its own, while it is entered."""

    def __init__(self, place: Place, listener: socket.socket, size: int) -> None:
        self._place, self._listener, self._size = place, listener, size
        self._arrived: queue.SimpleQueue[Tuple[int, Line]] = queue.SimpleQueue()
        self.woken, self._waker = socket.socketpair()  # `woken` can be read when someone has come
        self.woken.setblocking(False)
        self._near = _near(place)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._admit, name="doorkeeper")

    def __enter__(self) -> Doorkeeper:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over.set()
        self._thread.join()
        for _, line in self.newcomers():
            line.close()
        for end in (*self._near, self.woken, self._waker):
            end.close()

    def newcomers(self) -> Iterator[Tuple[int, Line]]:
        """Those who have come since, with their ranks."""
        with contextlib.suppress(BlockingIOError):
            self.woken.recv(1 << 10)
        while not self._arrived.empty():
            yield self._arrived.get()

    def _admit(self) -> None:
        def look() -> None:
            if self._over.is_set():
                raise PeerLost("the world is over")

        with contextlib.suppress(PeerLost):
            doors = [self._listener, *self._near]
            for rank, connection in arrivals(self._place, doors, lambda rank: rank < self._size, look):
                with contextlib.suppress(OSError):
                    self._arrived.put((rank, _line(rank, connection)))
                    self._waker.send(b"x")


def _near(place: Place) -> List[socket.socket]:
    """What listens for learners on this machine: nothing where that can't be, and they come by TCP."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(name(place, place.rank))
        listener.listen(64)
    except OSError:  # no Linux
        listener.close()
        return []
    return [listener]


def _line(rank: int, connection: socket.socket) -> Line:
    """Raises OSError."""
    other = f"learner {rank + 1}"
    return accept(connection, other) if connection.family == socket.AF_UNIX else Line(connection, other)
