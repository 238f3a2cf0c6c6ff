"""Arrays of gradients that travel in buckets, while others are computed.

Small arrays travel together, since every all-reduce has a price of its own, and large ones early, since what is on its
way costs no time while there is something to compute: Li et al., "PyTorch Distributed: Experiences on Accelerating Data
Parallel Training", 2020, section 3.2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Set

import numpy as np

if TYPE_CHECKING:
    from .overlay import Overlay, Pending

BUCKET = 1 << 20  # bytes
LAST = 1 << 18  # bytes of the last one: nothing is computed while it travels


class Buckets(Mapping[str, np.ndarray]):
    """Arrays (a dict, by name) that each learner fills with its own values, and that then hold those of all.

    A bucket goes on its way when all of its arrays are ready, and those before it have gone: so all learners send the
    same ones in the same order, in whatever order their arrays become ready.
    """

    def __init__(self, overlay: Overlay, like: Mapping[str, Any], operation: str = "mean") -> None:
        """As `Overlay.buckets`."""
        shapes = {name: np.shape(array) for name, array in like.items()}
        kinds = {np.asarray(array).dtype for array in like.values()}
        if len(kinds) > 1:
            raise TypeError(f"the arrays of buckets are of one type, and not {', '.join(sorted(map(str, kinds)))}")
        kind = kinds.pop() if kinds else np.dtype(np.float32)
        order = list(reversed(list(shapes)))
        lengths = [int(np.prod(shapes[name])) for name in order]
        memory = overlay.empty(sum(lengths), kind)
        memory[...] = 0
        ends = np.cumsum([0, *lengths]).tolist()
        places = {name: slice(*ends[number : number + 2]) for number, name in enumerate(order)}
        self._arrays = {name: memory[places[name]].reshape(shapes[name]) for name in shapes}
        self._overlay, self._operation = overlay, operation
        groups = divided([length * kind.itemsize for length in lengths])
        self._names: List[Set[str]] = [set(order[group]) for group in groups]
        self._of = {name: number for number, names in enumerate(self._names) for name in names}
        self._buckets = [memory[ends[group.start] : ends[group.stop]] for group in groups]
        self._missing: List[Set[str]] = [set(names) for names in self._names]
        self._under_way: List[Pending] = []

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def ready(self, *names: str) -> None:
        """These arrays are filled, and not to be touched until `wait` has returned; without names, all of them.

        Raises KeyError for a name that there is not, ValueError for one that was ready before.
        """
        for name in names or self._arrays:
            missing = self._missing[self._of[name]]
            if name in missing:
                missing.remove(name)
            elif names:
                raise ValueError(f"{name!r} was ready already: it is on its way until `wait` has returned")
        while len(self._under_way) < len(self._buckets) and not self._missing[len(self._under_way)]:
            bucket = self._buckets[len(self._under_way)]
            self._under_way.append(self._overlay.all_reduce_async(bucket, self._operation))

    def wait(self) -> None:
        """Returns when all arrays hold what all learners' come to. Raises PeerLost, Mismatch; ValueError where one has
        not been said to be ready."""
        missing = [name for name in self._arrays if name in self._missing[self._of[name]]]
        if missing:
            raise ValueError(f"not ready yet: {', '.join(map(repr, missing[:3]))}" + (" …" if len(missing) > 3 else ""))
        for pending in self._under_way:
            pending.wait()
        self._under_way.clear()
        self._missing = [set(names) for names in self._names]


def divided(sizes: List[int]) -> List[slice]:
    """Arrays of `sizes` (bytes), in buckets of BUCKET at most, and smaller ones at the end; or of one array."""
    groups: List[slice] = []
    end, room = len(sizes), LAST
    while end:
        begin = end - 1
        while begin and sum(sizes[begin - 1 : end]) <= room:
            begin -= 1
        groups.insert(0, slice(begin, end))
        end, room = begin, min(2 * room, BUCKET)
    return groups
