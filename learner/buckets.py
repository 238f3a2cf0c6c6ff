"""Arrays of gradients that travel in buckets, while others are computed.

Small arrays travel together, since every all-reduce has a price of its own, and large ones early, since what is on its
way costs no time while there is something to compute: Li et al., "PyTorch Distributed: Experiences on Accelerating Data
Parallel Training", 2020, section 3.2.3.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Sequence

import numpy as np

from .errors import Mismatch

if TYPE_CHECKING:
    from .overlay import Overlay, Pending

BUCKET = 1 << 20  # bytes
TCP_BUCKET = 1 << 19  # bytes by a network, where what a bucket costs by itself is less than waiting for the one before
LAST = 1 << 18  # bytes of the last one: nothing is computed while it travels


class Buckets(Mapping[str, np.ndarray]):
    """Arrays, by name, that each learner fills with its own values, and that then hold those of all.

    A bucket goes on its way when all of its arrays are ready, and those before it have gone. So, as long as no other
    collective is called before `wait`, all learners send the same ones in the same order, in whatever order their
    arrays become ready.
    """

    def __init__(self, overlay: Overlay, like: Mapping[str, Any], kind: np.dtype, operation: str) -> None:
        """As `Overlay.buckets`; `kind` is the type of all of `like`."""
        shapes = {name: np.shape(array) for name, array in like.items()}
        _agree(overlay, f"{shapes} {kind} {operation}")
        self._overlay, self._operation = overlay, operation
        order = list(reversed(list(shapes)))
        lengths = [int(np.prod(shapes[name])) for name in order]
        ends = np.cumsum([0, *lengths]).tolist()
        memory = overlay.empty(ends[-1], kind)
        memory[...] = 0
        places = {name: memory[ends[number] : ends[number + 1]] for number, name in enumerate(order)}
        self._arrays = {name: places[name].reshape(shape) for name, shape in shapes.items()}
        most = TCP_BUCKET if overlay.transport == "tcp" else BUCKET
        groups = divided([length * kind.itemsize for length in lengths], most)
        self._names = [order[group] for group in groups]
        self._buckets = [memory[ends[group.start] : ends[group.stop]] for group in groups]
        self._of = {name: number for number, names in enumerate(self._names) for name in names}
        self._begin()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._arrays[name][...] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def ready(self, *names: str) -> None:
        """These arrays are filled, and not to be touched until `wait` has returned; without names, all that are left.

        Raises KeyError for a name that there is not, ValueError for one that was ready before, PeerLost.
        """
        chosen = set(names or (name for missing in self._missing for name in missing))
        for name in chosen:
            if name not in self._missing[self._of[name]]:
                raise ValueError(f"{name!r} was ready already: it is not to be touched until `wait` has returned")
        for name in chosen:
            self._missing[self._of[name]].remove(name)
        while len(self._under_way) < len(self._buckets) and not self._missing[len(self._under_way)]:
            bucket = self._buckets[len(self._under_way)]
            self._under_way.append(self._overlay.all_reduce_async(bucket, self._operation))

    def wait(self) -> None:
        """Returns when all arrays hold what all learners' come to.

        Raises PeerLost, Mismatch; ValueError where one has not been said to be ready.
        """
        missing = [name for name in self._arrays if name in self._missing[self._of[name]]]
        if missing:
            raise ValueError(f"not ready yet: {', '.join(map(repr, missing[:3]))}" + (" …" if len(missing) > 3 else ""))
        self.ready()  # what could not be sent before can't be now: that is raised again
        for pending in self._under_way:
            pending.wait()
        self._begin()

    def _begin(self) -> None:
        self._missing = [set(names) for names in self._names]
        self._under_way: List[Pending] = []


def _agree(overlay: Overlay, about: str) -> None:
    """Raises Mismatch where not all have the same arrays: those of different layers would be added up."""
    own = np.frombuffer(hashlib.sha256(about.encode()).digest(), np.uint8)
    differ = [rank for rank, theirs in enumerate(overlay.all_gather(own)) if (theirs != own).any()]
    if differ:
        raise Mismatch(f"rank {differ[0]} has buckets of other arrays than this learner, or has them in another order")


def divided(sizes: Sequence[int], most: int) -> List[slice]:
    """Consecutive arrays of `sizes` (bytes) in buckets: of up to LAST at the end, of twice that before it, and so on
    up to `most`. An array that is larger has one of its own."""
    groups: List[slice] = []
    end, room = len(sizes), LAST
    while end:
        begin, size = end - 1, sizes[end - 1]
        while begin and size + sizes[begin - 1] <= room:
            begin -= 1
            size += sizes[begin]
        groups.append(slice(begin, end))
        end, room = begin, min(2 * room, most)
    return groups[::-1]
