"""The updates that learners send to a parameter server, block by block: all at once, or each as it comes."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, Optional

import numpy as np

from . import memory
from .exchange import BLOCK, ENDS, FAR_BLOCK, READY, SENDS, as_bytes
from .line import Line
from .optimizers import wide
from .solvers import Solver, Update, check, solver

ELEMENTS_MOST = 1 << 40


class Sender:
    """A learner's line, and how far its update has come."""

    def __init__(self, rank: int, line: Line) -> None:
        self.rank, self.line = rank, line
        self.what = 0  # is being received: a message of the protocol; 0: a head
        self.rate: Optional[float] = None  # of learning, if it has said one
        self.sent_as = np.dtype(float)
        self.block = 0  # of the update
        self.update: Optional[Update] = None
        self.updates = 0  # that are over
        self.sees = False  # the values, in their memory


class Updates:
    """What becomes of the parameters that `about` tells of, with what `size` learners send.

    `state` is what they begin with, None: zeros. `has` is what a reply begins with, `over` hears of an update's end.
    `common`: there are learners on this machine. Raises MemoryError; ValueError, TypeError, KeyError for what are no
    parameters.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        size: int,
        state: Optional[Dict[str, Any]],
        has: Callable[[], memoryview],
        over: Callable[[Sender], None],
        common: bool,
    ) -> None:
        count, kind, sent_as = about["elements"], np.dtype(about["dtype"]), np.dtype(about["sent_as"])
        if type(count) is not int or not 0 <= count < ELEMENTS_MOST or kind.kind != "f" or sent_as.kind != "f":
            raise ValueError("these are no parameters")
        if sent_as.itemsize > kind.itemsize:
            raise ValueError(f"gradients for parameters of {kind} are to be {kind} or smaller, not {sent_as}")
        check(about.get("elasticity"), about.get("staleness"), size)
        if count * kind.itemsize > memory.limit():
            raise MemoryError
        self.memory: Optional[int] = None  # that learners on this machine may see, if it is in use
        values = self._values(count, kind, common)
        try:
            self.solver: Solver = solver(dict(about), values)
            if state is not None:
                self.solver.restore(state)
        except BaseException:
            self.close()
            raise
        self._size, self._has, self._over = size, has, over
        self._staleness, self._sent_as = about.get("staleness"), sent_as
        self._most = (BLOCK if common else FAR_BLOCK) // kind.itemsize  # elements in a block
        self._blocks = max(1, -(-count // self._most))
        self._total = np.empty(self._most, wide(values))

    def close(self) -> None:
        """What is in its memory stays for who sees it."""
        if self.memory is not None:
            os.close(self.memory)

    def _values(self, count: int, kind: np.dtype, common: bool) -> np.ndarray:
        return np.zeros(count, kind)

    def begin(self, sender: Sender) -> None:
        """Its update is about to come."""
        sender.what, sender.block = SENDS, 0
        sender.line.blocks()
        self._want(sender)

    def _part(self, block: int) -> slice:
        return slice(block * self._most, min((block + 1) * self._most, len(self.solver.values)))

    def _bytes(self, block: int) -> int:
        part = self._part(block)
        return int((part.stop - part.start) * self._sent_as.itemsize)

    def _want(self, sender: Sender) -> None:
        sender.line.want_block(self._bytes(sender.block))

    def _sent(self, sender: Sender) -> np.ndarray:
        """The block of its update that has come. Not to be changed, and gone when something else is wanted of it."""
        return np.asarray(sender.line.block(self._bytes(sender.block))).view(self._sent_as)

    def _answer(self, sender: Sender, result: memoryview) -> None:
        """With `result` for the block that has come: wants the next."""
        if sender.sees:
            result = memoryview(READY if result.nbytes else b"")
        sender.line.put([self._has(), result] if sender.block == 0 else [result])
        sender.block += 1
        if sender.block < self._blocks:
            self._want(sender)
        else:
            sender.updates += 1
            self._over(sender)


class OneByOne(Updates):
    """Each learner's update changes the parameters as it comes."""

    def go_on(self, senders: Mapping[int, Sender]) -> bool:
        """Takes the blocks that have come from `senders`, by rank. Whether there were any."""
        moved = False
        for sender in list(senders.values()):
            while sender.what == SENDS and sender.line.filled and not self._ahead(sender, senders):
                self._take(sender)
                moved = True
        return moved

    def _take(self, sender: Sender) -> None:
        if sender.block == 0:
            sender.update = self.solver.begin(sender.rate)
        assert sender.update is not None
        sent = self._sent(sender).astype(self._total.dtype)
        result = self.solver.apply(sender.update, self._part(sender.block), sent, self._size)
        self._answer(sender, memoryview(result.astype(self.solver.values.dtype).tobytes()))

    def _ahead(self, sender: Sender, senders: Mapping[int, Sender]) -> bool:
        """It is further ahead of the slowest than it may be."""
        if sender.block > 0 or self._staleness is None:
            return False
        others = [other.updates for other in senders.values() if other.what != ENDS]
        return bool(sender.updates - min(others) > self._staleness)


class Lockstep(Updates):
    """All learners' updates are added up, block by block in the order of ranks, and change the parameters at once.

    So none is changed before all learners have seen it: they may see the values where they are.
    """

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._block = self._turn = 0  # what is being added up, and whose part is next
        self._update: Update  # once one has begun

    def go_on(self, senders: Mapping[int, Sender]) -> bool:
        """As `OneByOne.go_on`."""
        moved = False
        while True:
            sender = senders.get(self._turn)
            if sender is None or sender.what != SENDS or sender.block != self._block or not sender.line.filled:
                return moved
            moved = True
            self._add(senders)

    def _values(self, count: int, kind: np.dtype, common: bool) -> np.ndarray:
        if not common:
            return super()._values(count, kind, common)
        size = count * kind.itemsize
        try:
            self.memory = memory.make(size, used_whole=False)
            return memory.mapped(self.memory)[:size].view(kind)
        except OSError:
            self.close()
            raise MemoryError from None

    def _add(self, senders: Mapping[int, Sender]) -> None:
        part = self._part(self._block)
        total = self._total[: part.stop - part.start]
        self._turn += 1
        newest = self._sent(senders[self._turn - 1])
        if self._turn == 2:
            np.add(self._sent(senders[0]), newest, out=total, dtype=total.dtype)
        elif self._turn > 2:
            np.add(total, newest, out=total)
        elif self._size == 1:
            total[:] = newest
        if self._turn < self._size:
            return
        if self._block == 0:
            self._update = self.solver.begin(senders[0].rate)
        result = as_bytes(self.solver.apply(self._update, part, total, self._size))
        self._turn, self._block = 0, (self._block + 1) % self._blocks
        for rank in range(self._size):
            self._answer(senders[rank], result)
