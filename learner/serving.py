"""The program of a parameter server: `python -m ffdl.learner.serving`, run by the agent of its pod.

To the agent it is a script that follows the worlds of its job: it restores what all go on from, saves when the learners
do, and goes on in the next world when this one is over.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Dict, List, Optional, Union

from .contract import LOCKSTEP
from .doorkeeper import Doorkeeper
from .errors import PeerLost
from .exchange import (
    EMPTY,
    ENDS,
    HAS,
    HEAD,
    OPENS,
    REFUSES,
    SAVES,
    SENDS,
    SERVERS,
    SETS,
    SHOWS,
    TEXT_MOST,
    as_bytes,
    head,
)
from .line import Line, wait
from .rendezvous import Place
from .session import Session, run
from .shared_line import SharedLine
from .updates import Lockstep, OneByOne, Sender

LOOK_EVERY = 0.1  # seconds between two looks at what the job wants
LEAVE_WITHIN = 5.0  # seconds that a server which halts waits for learners that do not halt together


class RefusedError(Exception):
    """What a learner asks for can't be."""


class Server:
    """One server of a job. `serve` is called anew in each of its worlds."""

    def __init__(self) -> None:
        self._state: Optional[Dict[str, Any]] = None

    def serve(self, job: Session) -> None:
        """Serves the learners of one world. Ends by what `job` raises: PeerLost when it is over, Halted."""
        place = Place(SERVERS + job.rank, job.generation, job.world.key)
        state, self._state = self._state, None
        if state is None:
            state = job.restore()
        with job.listener() as listener, Doorkeeper(place, listener, job.world.size) as doorkeeper:
            world = _World(job, state, doorkeeper)
            try:
                world.serve()
            finally:
                if job.world.mode not in LOCKSTEP:  # what learners have sent meanwhile is not lost
                    self._state = world.state
                    job.hold(self._state)
                world.close()


class _Learner(Sender):
    """A learner's connection."""

    def __init__(self, rank: int, line: Line) -> None:
        super().__init__(rank, line)
        self.head = bytearray(HEAD.size)
        self.text = bytearray()
        self.opened = False
        self.waits = False  # for values that there are not yet
        self.line.want([memoryview(self.head)])

    def next_head(self) -> None:
        self.what = 0
        self.line.want([memoryview(self.head)])


class _World:
    """The learners of one world, and what they say."""

    def __init__(self, job: Session, state: Optional[Dict[str, Any]], doorkeeper: Doorkeeper) -> None:
        self._job, self._doorkeeper = job, doorkeeper
        self._begun_with = state  # until the first learner has told of the parameters
        self._lockstep = job.world.mode in LOCKSTEP
        self._about: Dict[str, Any] = {}  # what the first learner has asked for, and all the others are to
        self._updates: Union[Lockstep, OneByOne, None] = None
        self._empty = state is None  # nobody has given it values yet
        self._learners: Dict[int, _Learner] = {}
        self._left = ""  # who of those that go in lockstep is not there any more
        self._looked = 0.0
        self._leaving: Optional[float] = None

    @property
    def state(self) -> Optional[Dict[str, Any]]:
        """What it has now, for the next world."""
        if self._empty:
            return None
        return self._begun_with if self._updates is None else self._updates.solver.state()

    def serve(self) -> None:
        while True:
            moved = self._welcome()
            for learner in list(self._learners.values()):
                try:
                    moved |= learner.line.receive() | learner.line.send()
                    while learner.what not in (SENDS, ENDS) and learner.line.filled:
                        self._hear(learner)
                        moved = True
                except (PeerLost, RefusedError) as error:
                    self._lose(learner, error)
            if self._left:
                self._tell_waiting()
            elif self._updates is not None:
                moved |= self._updates.go_on(self._learners)
            self._look()
            if not moved:
                wait([learner.line for learner in self._learners.values()], LOOK_EVERY, self._doorkeeper.woken)

    def close(self) -> None:
        for learner in self._learners.values():
            learner.line.close()
        if self._updates is not None:
            self._updates.close()

    # --- who is there ---------------------------------------------------------------------------------------------

    def _welcome(self) -> bool:
        moved = False
        for rank, line in self._doorkeeper.newcomers():
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

    def _tell_waiting(self) -> None:
        why = RefusedError(self._left)
        for learner in list(self._learners.values()):
            if learner.what == SENDS:
                self._lose(learner, why)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        self._job.look()
        self._end()
        if self._job.halting:
            self._leaving = self._leaving or now
            if not self._working or (not self._lockstep and now - self._leaving > LEAVE_WITHIN):
                if not self._lockstep:  # else it was saved at the step at which all have halted
                    self._job.hold(self.state)
                self._job.leave()

    @property
    def _working(self) -> List[int]:
        """The ranks that are there and take steps."""
        return [rank for rank, learner in self._learners.items() if learner.opened and learner.what != ENDS]

    def _end(self) -> None:
        """What all have trained goes to those that wait for it, once no learner is to come or to take a step."""
        waiting = [learner for learner in self._learners.values() if learner.what == ENDS]
        if waiting and {*self._job.done, *(each.rank for each in waiting)} >= set(range(self._job.world.size)):
            for learner in waiting:
                self._give(learner)
                learner.next_head()

    # --- what they say --------------------------------------------------------------------------------------------

    def _hear(self, learner: _Learner) -> None:
        """All that was wanted of `learner` has come. Raises RefusedError."""
        if learner.what == 0:
            self._begin(learner)
        elif learner.what == OPENS:
            self._open(learner)
        else:
            self._has_values()
            learner.next_head()

    def _begin(self, learner: _Learner) -> None:
        what, size, number, rate = HEAD.unpack(learner.head)
        learner.rate = None if rate != rate else rate  # not a number: none
        if what == OPENS and not learner.opened and size <= TEXT_MOST:
            learner.what, learner.text = OPENS, bytearray(size)
            learner.line.want([memoryview(learner.text)])
        elif self._updates is None or not learner.opened:
            raise RefusedError("it says what it should not")
        elif what == SENDS and not learner.waits:
            self._updates.begin(learner)
        elif what == SETS and learner.waits and learner.rank == self._job.world.first:
            learner.what = SETS
            learner.line.want([as_bytes(self._updates.solver.values)])
        elif what == ENDS and not learner.waits and not self._lockstep:
            learner.what = ENDS
        elif what == SAVES and not learner.waits:
            # each at its own step: names that never go back are the same at all servers, whatever comes to them first
            step = number if self._lockstep else max(number, self._job.at)
            self._job.snapshot(step, self._updates.solver.state())
            learner.next_head()
        else:
            raise RefusedError("it says what it should not")

    def _open(self, learner: _Learner) -> None:
        try:
            about = json.loads(bytes(learner.text))
            if not isinstance(about, dict) or about.get("mode") != self._job.world.mode:
                raise ValueError(f"this job's mode is {self._job.world.mode}")
            if self._updates is None:
                way = Lockstep if self._lockstep else OneByOne
                common = isinstance(learner.line, SharedLine)
                self._updates = way(about, self._job.world.size, self._begun_with, self._has, self._over, common)
                self._about, self._begun_with = about, None
            elif about != self._about:
                raise ValueError(_difference(about, self._about))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RefusedError(str(error)) from None
        except MemoryError:
            raise RefusedError(f"a server has no memory for {about['elements']} parameters") from None
        learner.opened = learner.waits = True
        learner.next_head()
        if not self._empty:
            self._give(learner)
        elif learner.rank == self._job.world.first:
            learner.line.put([head(EMPTY)])

    def _has_values(self) -> None:
        self._empty = False
        for learner in self._learners.values():
            if learner.waits:
                self._give(learner)

    def _give(self, learner: _Learner) -> None:
        """All values to `learner`."""
        assert self._updates is not None
        learner.waits = False
        learner.sees = self._updates.memory is not None and learner.line.show(self._updates.memory)
        if learner.sees:
            learner.line.put([head(SHOWS)])
            return
        learner.line.put([self._has(), memoryview(self._updates.solver.values.tobytes())])

    def _has(self) -> memoryview:
        first = 0 if self._lockstep else min(self._working, default=0)
        return head(HAS, number=2 * first + int(self._job.halting))

    def _over(self, learner: Sender) -> None:
        assert isinstance(learner, _Learner)
        learner.next_head()


def _difference(about: Dict[str, Any], known: Dict[str, Any]) -> str:
    names: List[str] = [name for name in sorted({*about, *known}) if about.get(name) != known.get(name)]
    what = "names and shapes of parameters" if names == ["names"] else ", ".join(names)
    return f"learners disagree about {what}: {_some(about, names)} here, {_some(known, names)} at another"


def _some(about: Dict[str, Any], names: List[str]) -> str:
    return ", ".join(str(about.get(name)) for name in names)


if __name__ == "__main__":
    run(Server().serve)
