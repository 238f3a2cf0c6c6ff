"""The program of a parameter server: `python -m ffdl.learner.serving`, run by the agent of its pod.

To the agent it is a script that follows the worlds of its job: it restores what all go on from, saves when the learners
do, and goes on in the next world when this one is over.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from typing import Any, Dict, List, Optional

import numpy as np

from .contract import LOCKSTEP
from .errors import PeerLost
from .exchange import (
    BLOCK,
    EMPTY,
    HAS,
    HEAD,
    OPENS,
    REFUSES,
    SAVES,
    SENDS,
    SERVERS,
    SETS,
    TEXT_MOST,
    as_bytes,
    head,
)
from .line import Line, wait
from .rendezvous import Place, arrivals
from .session import Session, run
from .shared_line import accept, name
from .solvers import Solver, Update, solver

LOOK_EVERY = 0.1  # seconds between two looks at what the job wants
ELEMENTS_MOST = 1 << 40
LEAVE_WITHIN = 5.0  # seconds that a server which halts waits for learners that do not halt together


class RefusedError(Exception):
    """What a learner asks for can't be."""


class _Learner:
    """A learner's connection: what is coming, and how far its update is."""

    def __init__(self, rank: int, line: Line) -> None:
        self.rank, self.line = rank, line
        self.begun = bytearray(HEAD.size)
        self.what = 0  # is being received; 0: a head
        self.rate: Optional[float] = None  # of learning, if it has said one
        self.block = 0  # of the update
        self.update: Optional[Update] = None
        self.stage = np.empty(0)  # the block that comes
        self.waits = False  # for values that there are not yet
        self.opened = False
        self.updates = 0  # that are over
        self.line.want([memoryview(self.begun)])

    def next_head(self) -> None:
        self.what = 0
        self.line.want([memoryview(self.begun)])


class Server:
    """One server of a job. `serve` is called anew in each of its worlds."""

    def __init__(self) -> None:
        self._solver: Optional[Solver] = None

    def serve(self, job: Session) -> None:
        """Serves the learners of one world. Ends by what `job` raises: PeerLost when it is over, Halted."""
        place = Place(SERVERS + job.rank, job.generation, job.world.key)
        if self._solver is None or job.world.mode in LOCKSTEP:
            self._solver, saved = None, job.restore()
        else:
            saved = None  # what learners have sent meanwhile is not lost
        world = _World(job, self._solver, saved)
        with job.listener() as listener, world.admitting(place, listener):
            try:
                world.serve()
            finally:
                self._solver = None if world.empty else world.solver
                world.close()


class _World:
    """The learners of one world, and what they do to the parameters."""

    def __init__(self, job: Session, known: Optional[Solver], saved: Optional[Dict[str, Any]]) -> None:
        self.solver = known
        self.empty = True  # nobody has given it values yet
        self._job, self._saved = job, saved
        self._size, self._lockstep = job.world.size, job.world.mode in LOCKSTEP
        self._about: Dict[str, Any] = {}  # what the first learner has asked for, and all the others are to
        self._learners: Dict[int, _Learner] = {}
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._block = self._turn = 0  # in lockstep: what is being added up, and whose part is next
        self._most = 1  # elements in a block
        self._total = np.empty(0)
        self._update_of_all: Update  # once one has begun
        self._left = ""  # who of those that go in lockstep is not there any more
        self._over = threading.Event()
        self._looked = 0.0
        self._leaving: Optional[float] = None

    def serve(self) -> None:
        while True:
            moved = self._welcome()
            for learner in list(self._learners.values()):
                try:
                    moved |= learner.line.receive() | learner.line.send()
                    while learner.line.filled and self._hear(learner):
                        moved = True
                except (PeerLost, RefusedError) as error:
                    self._lose(learner, error)
            if self._lockstep:
                moved |= self._add_up()
            self._look()
            if not moved:
                wait([learner.line for learner in self._learners.values()], LOOK_EVERY, self._woken)

    def close(self) -> None:
        for learner in self._learners.values():
            learner.line.close()
        self._woken.close()
        self._waker.close()

    # --- who is there ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def admitting(self, place: Place, listener: socket.socket) -> Any:
        """Lets learners of this world in, in a thread of its own."""

        def look() -> None:
            if self._over.is_set():
                raise PeerLost("the world is over")

        def admit(near: socket.socket) -> None:
            with contextlib.suppress(PeerLost):
                for rank, connection in arrivals(place, [listener, near], lambda rank: rank < self._size, look):
                    with contextlib.suppress(OSError):
                        self._arrived.put((rank, _line(rank, connection)))
                        self._waker.send(b"x")

        with _near(place) as near:
            doorkeeper = threading.Thread(target=admit, args=(near,), name="doorkeeper")
            doorkeeper.start()
            try:
                yield
            finally:
                self._over.set()
                doorkeeper.join()
                while not self._arrived.empty():
                    self._arrived.get()[1].close()

    def _welcome(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(1 << 10)
        moved = False
        while not self._arrived.empty():
            rank, line = self._arrived.get()
            if rank in self._learners:  # its process has begun anew, or it has found a shorter way
                self._lose(self._learners[rank], PeerLost("it is there again"))
            learner = _Learner(rank, line)
            learner.updates = min((other.updates for other in self._learners.values()), default=0)
            self._learners[rank] = learner
            moved = True
        return moved

    def _lose(self, learner: _Learner, error: Exception) -> None:
        if isinstance(error, RefusedError):
            print(f"ffdl: learner {learner.rank + 1} is refused: {error}", flush=True)
            learner.line.put([head(REFUSES, str(error).encode()[:TEXT_MOST])])
            with contextlib.suppress(PeerLost):
                learner.line.send()
        learner.line.close()
        if self._learners.get(learner.rank) is learner:
            del self._learners[learner.rank]
        if self._lockstep and learner.opened:
            self._left = f"learner {learner.rank + 1} has left"

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        self._job.look()
        if self._job.halting:
            self._leaving = self._leaving or now
            if not self._learners or (not self._lockstep and now - self._leaving > LEAVE_WITHIN):
                self._job.leave()

    # --- what they say --------------------------------------------------------------------------------------------

    def _hear(self, learner: _Learner) -> bool:
        """All that was wanted of `learner` has come. Whether it was dealt with, or has to wait."""
        if learner.what == 0:
            return self._begin(learner)
        if learner.what == OPENS:
            self._open(learner)
        elif learner.what == SETS:
            self._has_values()
            learner.next_head()
        elif not self._lockstep:
            return self._update(learner)
        return learner.what != SENDS

    def _begin(self, learner: _Learner) -> bool:
        what, size, number, rate = HEAD.unpack(learner.begun)
        learner.rate = None if rate != rate else rate  # not a number: none
        if what == OPENS and not learner.opened and size <= TEXT_MOST:
            learner.what, learner.stage = OPENS, np.empty(size, np.uint8)
            learner.line.want([learner.stage.data])
        elif what == SENDS and learner.opened and not learner.waits:
            learner.what, learner.block = SENDS, 0
            self._want_block(learner)
        elif what == SETS and learner.waits and learner.rank == 0 and self.solver is not None:
            learner.what = SETS
            learner.line.want([as_bytes(self.solver.values)])
        elif what == SAVES and learner.opened and not learner.waits and self.solver is not None:
            self._job.snapshot(number, self.solver.state())
            learner.next_head()
        else:
            raise RefusedError("it says what it should not")
        return True

    def _open(self, learner: _Learner) -> None:
        try:
            about = json.loads(learner.stage.tobytes())
            if not isinstance(about, dict) or about.get("mode") != self._job.world.mode:
                raise ValueError(f"this job's mode is {self._job.world.mode}")
            if not self._about:
                self._take(about)
            elif about != self._about:
                raise ValueError(_difference(about, self._about))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RefusedError(str(error)) from None
        except MemoryError:
            raise RefusedError(f"a server has no memory for {about['elements']} parameters") from None
        learner.opened = learner.waits = True
        sent_as = np.dtype(about["sent_as"])
        learner.stage = np.empty(self._most, sent_as)
        learner.next_head()
        if not self.empty:
            self._answer(learner)
        elif learner.rank == 0:
            learner.line.put([head(EMPTY)])

    def _take(self, about: Dict[str, Any]) -> None:
        """What the parameters are, as the first learner says."""
        count, kind, sent_as = about["elements"], np.dtype(about["dtype"]), np.dtype(about["sent_as"])
        if type(count) is not int or not 0 <= count < ELEMENTS_MOST or kind.kind != "f" or sent_as.kind != "f":
            raise ValueError("these are no parameters")
        known, self.empty = self.solver, False
        made = solver(about, np.zeros(count, kind))
        if known is not None:
            made.restore(known.state())
        elif self._saved is not None:
            made.restore(self._saved)
        else:
            self.empty = True
        self._about, self.solver = about, made
        self._most = BLOCK // kind.itemsize
        self._total = np.empty(self._most, np.promote_types(kind, np.float32))

    def _has_values(self) -> None:
        self.empty = False
        for learner in self._learners.values():
            if learner.waits:
                self._answer(learner)

    def _answer(self, learner: _Learner) -> None:
        """With all values."""
        assert self.solver is not None
        learner.waits = False
        learner.line.put([self._has(), memoryview(self.solver.values.tobytes())])

    def _has(self) -> memoryview:
        return head(HAS, number=int(self._job.halting))

    # --- updates --------------------------------------------------------------------------------------------------

    def _part(self, block: int) -> slice:
        assert self.solver is not None
        return slice(block * self._most, min((block + 1) * self._most, len(self.solver.values)))

    @property
    def _blocks(self) -> int:
        assert self.solver is not None
        return max(1, -(-len(self.solver.values) // self._most))

    def _want_block(self, learner: _Learner) -> None:
        part = self._part(learner.block)
        learner.line.want([as_bytes(learner.stage[: part.stop - part.start])])

    def _update(self, learner: _Learner) -> bool:
        """One learner's own, as it comes."""
        assert self.solver is not None
        if learner.block == 0:
            if self._ahead(learner):
                return False
            learner.update = self.solver.begin(learner.rate)
            learner.line.put([self._has()])
        assert learner.update is not None
        part = self._part(learner.block)
        sent = learner.stage[: part.stop - part.start].astype(self._total.dtype)
        result = self.solver.apply(learner.update, part, sent, self._size)
        learner.line.put([memoryview(result.astype(self.solver.values.dtype).tobytes())])
        self._go_on(learner)
        return True

    def _ahead(self, learner: _Learner) -> bool:
        """It is further ahead of the slowest than it may be."""
        bound = self._about.get("staleness")
        slowest = min(other.updates for other in self._learners.values())
        return bound is not None and learner.updates - slowest > bound

    def _go_on(self, learner: _Learner) -> None:
        learner.block += 1
        if learner.block < self._blocks:
            self._want_block(learner)
        else:
            learner.updates += 1
            learner.next_head()

    def _add_up(self) -> bool:
        """All learners' updates, block by block in the order of ranks. Whether there was something to do."""
        moved = False
        while True:
            learner = self._learners.get(self._turn)
            if learner is None and self._left:
                self._tell_waiting()
                return moved
            if learner is None or learner.what != SENDS or learner.block != self._block or not learner.line.filled:
                return moved
            moved = True
            self._add(learner)

    def _add(self, learner: _Learner) -> None:
        assert self.solver is not None
        part = self._part(self._block)
        length = part.stop - part.start
        if self._turn > 0:
            np.add(self._total[:length], learner.stage[:length], out=self._total[:length])
        elif learner.stage.dtype == self._total.dtype:  # nothing needs to be copied
            self._total, learner.stage = learner.stage, self._total
        else:
            self._total[:length] = learner.stage[:length]
        self._turn += 1
        if self._turn < self._size:
            return
        if self._block == 0:
            self._update_of_all = self.solver.begin(self._learners[0].rate)
        result = self.solver.apply(self._update_of_all, part, self._total[:length], self._size)
        for each in self._learners.values():
            each.line.put([self._has(), as_bytes(result)] if self._block == 0 else [as_bytes(result)])
            self._go_on(each)
        self._turn = 0
        self._block = (self._block + 1) % self._blocks

    def _tell_waiting(self) -> None:
        why = RefusedError(self._left)
        for learner in list(self._learners.values()):
            if learner.what == SENDS:
                self._lose(learner, why)


def _near(place: Place) -> socket.socket:
    """Listens for learners on this machine."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(OSError):  # no Linux: nobody will find it
        listener.bind(name(place, place.rank))
    listener.listen(64)
    return listener


def _line(rank: int, connection: socket.socket) -> Line:
    """Raises OSError."""
    other = f"learner {rank + 1}"
    return accept(connection, other) if connection.family == socket.AF_UNIX else Line(connection, other)


def _difference(about: Dict[str, Any], known: Dict[str, Any]) -> str:
    names: List[str] = [name for name in sorted({*about, *known}) if about.get(name) != known.get(name)]
    what = "names and shapes of parameters" if names == ["names"] else ", ".join(names)
    return f"learners disagree about {what}: {_some(about, names)} here, {_some(known, names)} at another"


def _some(about: Dict[str, Any], names: List[str]) -> str:
    return ", ".join(str(about.get(name)) for name in names)


if __name__ == "__main__":
    run(Server().serve)
