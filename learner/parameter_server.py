"""Learners' side of parameter servers: parameters that all learners train, kept by servers between them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from .collective import LOOK_EVERY
from .errors import Mismatch, PeerLost
from .exchange import (
    BLOCK,
    EMPTY,
    ENDS,
    HAS,
    HEAD,
    OPENS,
    READY,
    REFUSES,
    SAVES,
    SENDS,
    SERVERS,
    SETS,
    SHOWS,
    TEXT_MOST,
    Row,
    as_bytes,
    blocks,
    head,
)
from .line import Line, wait
from .optimizers import SGD, Adam, Optimizer, described, new_slots, wide
from .rendezvous import Place, connect
from .shared_line import shared_line
from .solvers import ASYNC, EASGD, GRADIENTS, check

__all__ = ["SGD", "Adam", "Optimizer", "ParameterServer"]

Parameters = Mapping[str, np.ndarray]


class ParameterServer:
    """The parameters of a model that several learners train, at all servers of a job.

    `parameters` are this learner's own arrays, which every `step` brings up to date in place. All learners are to have
    the same ones, in the same order. `leaving`: a server is to halt, and the learners with it.
    """

    def __init__(
        self,
        place: Place,
        servers: Sequence[Tuple[str, int]],
        parameters: Union[Parameters, np.ndarray],
        optimizer: Optimizer,
        mode: str = "sync",
        *,
        gradients: Any = None,
        every: int = 1,
        elasticity: Optional[float] = None,
        staleness: Optional[int] = None,
        state: Optional[Dict[str, Any]] = None,
        look: Callable[[], None] = lambda: None,
        shared_memory: bool = True,
        learners: int = 1,
    ) -> None:
        """Connects to `servers`, and sets `parameters` to what they have; where they have none, to those of the
        first rank that is not done.

        `gradients`: the type in which gradients are sent (float16), if not the parameters'. Where learners send their
        parameters (modes easgd and average) it is `every` that many steps; one that goes on from a `state()` keeps its
        own parameters until the next time. `look` is called twice a second in waiting, and may raise what is to end it.
        Without `shared_memory` it is TCP on one machine, too. `learners` are at most to share `elasticity`. Raises
        PeerLost, Mismatch, and ValueError for options that can't be.
        """
        if every < 1:
            raise ValueError(f"every must be at least 1, but is {every}")
        check(elasticity, staleness, learners)
        self.parameters: Parameters = {"": parameters} if isinstance(parameters, np.ndarray) else dict(parameters)
        self.mode, self.optimizer, self.leaving = mode, optimizer, False
        self._every, self._look, self._rank = every, look, place.rank
        self._first = 0  # of the ranks that are there: it says when servers save
        self._row = Row(self.parameters, max(1, len(servers)))
        self._sent_as = np.dtype(gradients or self._row.dtype) if mode in GRADIENTS else self._row.dtype
        self._steps = 0
        self._finished = False
        self._slots: Dict[str, List[np.ndarray]] = {}
        if mode not in GRADIENTS or not servers:
            self._slots = {name: new_slots(optimizer, array) for name, array in self.parameters.items()}
        own = {}
        if state:
            self._restore(state)
            own = {name: array.copy() for name, array in self.parameters.items() if mode not in GRADIENTS}
        self._lines: List[Line] = []
        self._seen: Dict[int, np.ndarray] = {}  # values of servers on this machine
        self._heads = [bytearray(HEAD.size) for _ in servers]
        try:
            for number, address in enumerate(servers):
                self._lines.append(_line(place, number, address, look, shared_memory))
            self._open({"elasticity": elasticity, "staleness": staleness})
            for name, array in own.items():
                self.parameters[name][...] = array
        except BaseException:
            self.close()
            raise

    def step(self, gradients: Union[Mapping[str, Any], Any], lr: Optional[float] = None) -> None:
        """One step of the optimizer, as the job's mode has it, after which `parameters` are the new ones.

        `gradients` have the names and shapes of the parameters. `lr`: this step's learning rate, the first rank's
        where several take it together. Raises PeerLost, Mismatch; ValueError before anything is sent.
        """
        given = self._like_parameters(gradients)
        if self._finished:
            raise ValueError("finish() comes after the last step")
        self._steps += 1
        rate = float("nan") if lr is None else float(lr)
        if self.mode in GRADIENTS and self._lines:
            self._exchange(given, rate)
            return
        optimizer = self.optimizer if lr is None else replace(self.optimizer, lr=lr)
        for name, array in self.parameters.items():
            optimizer.update(array, given[name].astype(wide(array)), self._slots[name], self._steps)
        if self._steps % self._every == 0 and self._lines:
            self._exchange(self.parameters, rate)

    def finish(self) -> None:
        """After the last step: `parameters` become the model that all have trained, the same at all learners.

        Waits until no learner is to take another step: the others call this too, or have ended. Raises PeerLost,
        Mismatch.
        """
        if self._finished or not self._lines:
            return
        if self.mode not in GRADIENTS and self._steps % self._every:
            self._exchange(self.parameters, float("nan"))
        if self.mode in (ASYNC, EASGD):
            for line in self._lines:
                line.put([head(ENDS)])
            self._answers(range(len(self._lines)))
            if self.leaving:
                raise PeerLost("the parameter servers halt")
        self._finished = True

    def save(self, step: int) -> None:
        """The servers are to keep what they have now, as that of `step`: only the first learner there is tells them."""
        if self._rank != self._first:
            return
        for line in self._lines:
            line.put([head(SAVES, number=step)])
        self._flow(self._lines, lambda line: line.idle)

    def state(self) -> Dict[str, Any]:
        """What a learner has to save beside its parameters: nothing much, unless it takes steps of its own."""
        return {"steps": self._steps, "slots": {name: list(slots) for name, slots in self._slots.items()}}

    def close(self) -> None:
        """Leaves the servers."""
        for line in self._lines:
            line.close()

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._steps = int(state["steps"])
        for name, slots in self._slots.items():
            for slot, saved in zip(slots, state["slots"].get(name, ())):
                slot[...] = saved

    def _like_parameters(self, gradients: Any) -> Dict[str, np.ndarray]:
        given = gradients if isinstance(gradients, Mapping) else {"": gradients}
        if given.keys() != self.parameters.keys():
            raise ValueError(f"gradients are of {', '.join(given)}, parameters {', '.join(self.parameters)}")
        found = {name: np.asarray(value, order="C") for name, value in given.items()}
        for name, array in found.items():
            if array.shape != self._row.shapes[name]:
                raise ValueError(f"the gradient of {name} has shape {array.shape}, not {self._row.shapes[name]}")
        return found

    def _open(self, wishes: Dict[str, Any]) -> None:
        names = json.dumps(list(self._row.shapes.items()))
        about = {
            "dtype": self._row.dtype.name,
            "sent_as": self._sent_as.name,
            "names": hashlib.sha256(names.encode()).hexdigest(),
            "mode": self.mode,
            "optimizer": described(self.optimizer),
            **wishes,
        }
        for number, line in enumerate(self._lines):
            part = self._row.parts[number]
            line.put([head(OPENS, json.dumps({**about, "elements": part.stop - part.start}).encode())])
        asking = self._answers(range(len(self._lines)))
        for number in asking:
            own = list(map(as_bytes, self._row.of(self.parameters, number)))
            self._lines[number].put([head(SETS), *own])
        self._answers(asking)

    def _exchange(self, arrays: Mapping[str, np.ndarray], rate: float) -> None:
        for number, line in enumerate(self._lines):
            line.put([head(SENDS, number=self._steps, rate=rate)])
            line.put_blocks(self._as_sent(self._row.of(arrays, number)))
        self._answers(range(len(self._lines)))

    def _as_sent(self, views: List[np.ndarray]) -> Iterator[memoryview]:
        block = np.empty(BLOCK // self._sent_as.itemsize, self._sent_as)
        for view in views:
            if view.dtype == self._sent_as:
                yield as_bytes(view)
                continue
            for at in range(0, len(view), len(block)):
                piece = view[at : at + len(block)]
                block[: len(piece)] = piece
                yield as_bytes(block[: len(piece)])

    def _answers(self, servers: Sequence[int]) -> List[int]:
        """What `servers` have comes into the parameters. Returns those that have nothing, and ask this rank for it."""
        asking: List[int] = []
        unheard = {self._lines[number]: number for number in servers}
        for line, number in unheard.items():
            line.want([memoryview(self._heads[number])])

        def over(line: Line) -> bool:
            if line in unheard and line.filled:
                number = unheard.pop(line)
                what, size, said, _ = HEAD.unpack(self._heads[number])
                self.leaving = self.leaving or bool(said % 2)
                if what == HAS:
                    self._first = said // 2 if number == 0 else self._first  # one server's word: all save, or none
                    line.want(self._taken(number))
                elif what == SHOWS:
                    self._see(line, number)
                elif what == EMPTY:
                    asking.append(number)
                else:
                    self._refused(line, what, size)
            return line not in unheard and line.filled and line.idle

        self._flow(list(unheard), over)
        return asking

    def _see(self, line: Line, number: int) -> None:
        shown = line.shown()
        if shown is None:
            raise PeerLost("a parameter server has shown nothing")
        part = self._row.parts[number]
        self._seen[number] = shown[: (part.stop - part.start) * self._row.dtype.itemsize].view(self._row.dtype)
        self._copy(self._row.of(self.parameters, number), self._seen[number])

    def _taken(self, number: int) -> Iterator[memoryview]:
        """Where the values of server `number` are to come. What is seen elsewhere is copied when it is ready there."""
        views, seen = self._row.of(self.parameters, number), self._seen.get(number)
        if seen is None:
            yield from map(as_bytes, views)
            return
        ready = memoryview(bytearray(len(READY)))
        for pieces in blocks(views, BLOCK // seen.itemsize):
            yield ready
            seen = self._copy(pieces, seen)

    def _copy(self, pieces: List[np.ndarray], seen: np.ndarray) -> np.ndarray:
        """Returns the rest."""
        for piece in pieces:
            piece[:], seen = seen[: len(piece)], seen[len(piece) :]
        return seen

    def _refused(self, line: Line, what: int, size: int) -> None:
        if what != REFUSES or size > TEXT_MOST:
            raise PeerLost("a parameter server says what it should not")
        text = bytearray(size)
        line.want([memoryview(text)])
        self._flow([line], lambda line: line.filled)
        words = text.decode("utf-8", "replace")
        raise PeerLost(words) if words.startswith("learner ") else Mismatch(words)

    def _flow(self, lines: Sequence[Line], over: Callable[[Line], bool]) -> None:
        """Sends and receives until it is over for all."""
        going = [line for line in lines if not over(line)]
        while going:
            moved = [line.send() | line.receive() for line in going]
            going = [line for line in going if not over(line)]
            while going and not any(moved) and not wait(going, LOOK_EVERY):
                self._look()


def _line(place: Place, number: int, address: Tuple[str, int], look: Callable[[], None], shared_memory: bool) -> Line:
    other = f"parameter server {number + 1}"
    connection = connect(place, SERVERS + number, address, look)
    shared = shared_line(place, SERVERS + number, other) if shared_memory else None
    if shared is None:
        return Line(connection, other)
    connection.close()
    return shared
