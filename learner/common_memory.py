"""Memory that all ranks of one machine have in common, and how they meet in it.

Each rank makes memory without a name (memfd) and hands it to the others over Unix sockets: nothing is left of it,
whoever is killed. They meet by counters in it. Who has waited for a moment sleeps at its sockets, where it is woken,
and where the end of another is heard.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from typing import Callable, Dict, List

import numpy as np

from . import memory
from .collective import LOOK_EVERY
from .errors import PeerLost
from .rendezvous import hang_up

SPIN = 1e-4  # seconds that a rank looks again and again before it sleeps
_ARRIVED, _ASLEEP, _SAYS = 0, 64, 128  # places in the first memory of a rank: cache lines of their own
_SAYING = 64  # bytes
BEGIN = 4096  # what is before it in the first memory is ours
_WAKE = b"w"


class CommonMemory:
    """Rank `rank`; `links` are SOCK_SEQPACKET connections to the others. `of[r]` is the memory that rank r has made, in
    order; the first has `size` bytes. `look` is called twice a second in waiting, and may raise what is to end it."""

    def __init__(self, rank: int, links: Dict[int, socket.socket], size: int, look: Callable[[], None]) -> None:
        self.rank, self.others = rank, list(links)
        self._links, self._look = links, look
        self._poll = select.poll()
        self._ranks = {link.fileno(): other for other, link in links.items()}  # those that are still there
        for link in links.values():
            link.setblocking(False)
            self._poll.register(link, select.POLLIN)
        self._fence = threading.Lock()
        self._meetings = 0
        self.of: List[List[np.ndarray]] = [[] for _ in range(len(links) + 1)]
        descriptor = memory.make(size)
        try:
            self.share(descriptor)
        finally:
            os.close(descriptor)
        self._first = [made[0] for made in self.of]
        self._arrived = [first[_ARRIVED : _ARRIVED + 8].view(np.uint64) for first in self._first]
        self._asleep = [first[_ASLEEP : _ASLEEP + 8].view(np.uint64) for first in self._first]

    def share(self, descriptor: int) -> np.ndarray:
        """All bytes of what `memory.make` has made are this rank's from now on, once all have called it."""
        self.of[self.rank].append(made := memory.mapped(descriptor))
        for other in self.others:
            self._hand_over(other, descriptor)
        count = len(self.of[self.rank])
        for other in self.others:
            self._receive(other, count)
        return made

    def meet(self, saying: bytes = b"") -> List[bytes]:
        """Returns when all ranks are here, with what each says: all the same number of bytes, 64 at most.

        Raises PeerLost."""
        self.arrive(saying)
        for other in self.others:
            self._await(other)
        at = _SAYS + self._meetings % 2 * _SAYING
        with self._fence:
            return [first[at : at + len(saying)].tobytes() for first in self._first] if saying else []

    def arrive(self, saying: bytes) -> None:
        """The first half of `meet`: the others need not wait for this rank."""
        self._meetings += 1
        at = _SAYS + self._meetings % 2 * _SAYING  # what was said at the last meeting may still be read
        self._first[self.rank][at : at + len(saying)] = np.frombuffer(saying, np.uint8)
        with self._fence:  # a lock is a barrier for the processor too: what was written is there before it is told
            self._arrived[self.rank][0] = self._meetings
        with self._fence:  # told before it is looked who sleeps, as who goes to sleep looks afterwards who has come
            for other in self.others:
                if self._asleep[other][0]:
                    _wake(self._links[other])

    def close(self) -> None:
        for link in self._links.values():
            hang_up(link)

    def _hand_over(self, other: int, descriptor: int) -> None:
        self._until(other, lambda: _sent(self._links[other], descriptor))

    def _receive(self, other: int, count: int) -> None:
        self._until(other, lambda: len(self.of[other]) >= count)

    def _await(self, other: int) -> None:
        if self._arrived[other][0] < self._meetings:
            self._until(other, lambda: bool(self._arrived[other][0] >= self._meetings))

    def _until(self, other: int, condition: Callable[[], bool]) -> None:
        """Waits for something of rank `other`: awake for a moment, then asleep."""
        awake_until = time.perf_counter() + SPIN
        while not condition():
            if time.perf_counter() < awake_until:
                os.sched_yield()
                continue
            if self._links[other].fileno() not in self._ranks:
                raise PeerLost(f"rank {other} is gone")
            self._sleep(condition)

    def _sleep(self, condition: Callable[[], bool]) -> None:
        asleep = self.of[self.rank][0][_ASLEEP : _ASLEEP + 8].view(np.uint64)
        asleep[0] = 1
        with self._fence:
            there = condition()
        if not there:
            events = self._poll.poll(1000 * LOOK_EVERY)
            for descriptor, _ in events:
                self._hear(descriptor)
            if not events:
                self._look()
        asleep[0] = 0

    def _hear(self, descriptor: int) -> None:
        """What has come at a link: memory, a wake-up, the end of the other."""
        other = self._ranks[descriptor]
        while True:
            try:
                said, descriptors, _, _ = socket.recv_fds(self._links[other], len(memory.MEMORY), 1)
            except BlockingIOError:
                return
            except OSError:
                said = b""
            if not said:
                self._poll.unregister(descriptor)
                del self._ranks[descriptor]
                return
            for received in descriptors:
                self.of[other].append(memory.mapped(received))
                os.close(received)


def _sent(link: socket.socket, descriptor: int) -> bool:
    try:
        socket.send_fds(link, [memory.MEMORY], [descriptor])
    except BlockingIOError:
        return False
    except OSError:
        return True  # it is gone: whoever waits for it hears of that
    return True


def _wake(link: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is gone, or has not heard all the others yet
        link.send(_WAKE)
