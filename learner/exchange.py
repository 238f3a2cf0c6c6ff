"""What a learner and a parameter server say to each other, once each has proven that it belongs to the world.

    learner  OPENS, JSON       which parameters, and what is to be done with them
    server   EMPTY             it has none yet: the first rank that is not done is to give them
    learner  SETS, values      its part of them
    server   HAS, values       its part of the parameters
    learner  SENDS, values     its part of gradients or parameters, as often as it likes
    server   HAS, values       its part of the parameters after that, which begins to come while others are still sent
    server   SHOWS             in place of the first HAS: its part can be seen in memory that it has handed over. After
                               each HAS there are now no values, but a READY for each block, when it can be seen there
    learner  SAVES             the server is to keep what it has, as that of step `number`. Rank 0 says so to all; where
                               learners do not go in lockstep it is the lowest rank that the first server has at work
    learner  ENDS              it takes no more steps: where learners do not go in lockstep. It is answered with HAS,
                               values, once no other one is to take any
    server   REFUSES, text     and nothing after that

Each begins with a head of fixed size, where the number of HAS is twice that lowest rank, and one more for a server
that is to halt; how many values there are has been said at the beginning, and text is bounded.
"""

from __future__ import annotations

import struct
from typing import Iterable, Iterator, List, Mapping

import numpy as np

from .collective import chunks

OPENS, SETS, SENDS, SAVES, EMPTY, HAS, REFUSES, SHOWS, ENDS = range(1, 10)
HEAD = struct.Struct("=IIQd")  # what it is, bytes of its text, a number, a learning rate (not a number: as it was)
TEXT_MOST = 4096  # bytes
SERVERS = 1 << 20  # the first server's rank, where all of a world need one
READY = b"12345678"  # as long as keeps what comes after it aligned
BLOCK = 1 << 19  # bytes that a server works on at a time: they are still in the processor's cache then
FAR_BLOCK = 1 << 16  # the same where learners come by a network: the sooner the first goes back, the less it rests


class Row:
    """Named arrays as one row of elements, of which each of `servers` has an even part, whatever the arrays' sizes.

    Raises TypeError, ValueError for what can't be one.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], servers: int) -> None:
        if not arrays:
            raise ValueError("there are no parameters")
        kinds = {array.dtype for array in arrays.values()}
        if len(kinds) > 1 or not all(kind.kind == "f" and kind.itemsize <= 8 for kind in kinds):
            words = " and ".join(sorted(map(str, kinds)))
            raise TypeError(f"parameters are arrays of one type, float16, float32 or float64, not of {words}")
        for name, array in arrays.items():
            if not (array.flags.c_contiguous and array.flags.writeable):
                raise ValueError(f"{name} is to be changed in place: it must be a writable array, of one piece")
        (self.dtype,) = kinds
        self.shapes = {name: array.shape for name, array in arrays.items()}
        self.parts = chunks(sum(array.size for array in arrays.values()), servers)

    def of(self, arrays: Mapping[str, np.ndarray], server: int) -> List[np.ndarray]:
        """What of `arrays`, which have these names and shapes, goes to `server`: views, in order."""
        part, at = self.parts[server], 0
        found = []
        for name in self.shapes:
            flat = arrays[name].reshape(-1)
            begin, end = max(part.start - at, 0), min(part.stop - at, len(flat))
            if begin < end:
                found.append(flat[begin:end])
            at += len(flat)
        return found


def blocks(views: Iterable[np.ndarray], elements: int) -> Iterator[List[np.ndarray]]:
    """The row of `views` in blocks of so many `elements`, each as views of its parts."""
    block: List[np.ndarray] = []
    missing = elements
    for view in views:
        while len(view):
            block.append(view[:missing])
            missing, view = missing - len(block[-1]), view[missing:]
            if not missing:
                yield block
                block, missing = [], elements
    if block:
        yield block


def as_bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def head(what: int, text: bytes = b"", number: int = 0, rate: float = float("nan")) -> memoryview:
    """A message's beginning, with its text."""
    return memoryview(HEAD.pack(what, len(text), number, rate) + text)
