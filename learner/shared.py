"""Collectives in the memory that all ranks of one machine have in common."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import memory
from .collective import ALL_GATHER, BARRIER, BROADCAST, EMPTY, NONE, OPERATIONS, add, chunks, finish, head, said
from .common_memory import BEGIN, CommonMemory
from .errors import Mismatch

SLOT = 1 << 20  # bytes of an array of its own that a rank shows the others at a time
SLOTS = 3  # one is filled, one added up, one emptied: so one meeting a round is enough
ADD_BLOCK = 1 << 17  # bytes of common memory added up at a time: still in the processor's cache when written
_PLACE = struct.Struct("=Q")  # behind a head: where in the common memory the array is
_BITS = 48  # of the byte in a memory; above them is the memory's number
_ELSEWHERE = (1 << 64) - 1


class Shared:
    """Rank `rank`; `links` and `look` as in `CommonMemory`. One caller at a time; of no more use after an error."""

    def __init__(self, rank: int, links: Dict[int, socket.socket], look: Callable[[], None]) -> None:
        self.rank, self.size = rank, len(links) + 1
        self._number = self._round = 0
        self._common = CommonMemory(rank, links, BEGIN + SLOTS * SLOT, look)
        self._slots = [made[0][BEGIN:].reshape(SLOTS, SLOT) for made in self._common.of]

    def empty(self, length: int, dtype: np.dtype) -> Optional[np.ndarray]:
        """Memory for `length` elements, of which nothing has to be copied; None where there is no room at some rank.

        Every rank is to call this, in one order.
        """
        size, made = length * dtype.itemsize, None
        with contextlib.suppress(OSError):
            made = memory.make(size)
        try:
            place = _ELSEWHERE if made is None else 0
            heads = self._meet(self._head(EMPTY, np.broadcast_to(np.zeros((), dtype), length), place))
            if made is None or _ELSEWHERE in map(_place_of, heads):
                return None
            return self._common.share(made)[:size].view(dtype)
        finally:
            if made is not None:
                os.close(made)

    def all_reduce(self, array: np.ndarray, operation: str) -> None:
        """As `Ring.all_reduce`, with the same bits."""
        place = self._place(array)
        begun = self._head(OPERATIONS.index(operation), array, place)
        if place == _ELSEWHERE:
            self._reduce_by_slots(begun, array, operation)
            return
        places = list(map(_place_of, self._meet(begun)))
        if _ELSEWHERE in places:
            self._reduce_by_slots(b"", array, operation)
        else:
            self._reduce_in_place(places, array, operation)

    def all_gather(self, rows: np.ndarray) -> None:
        """As `Ring.all_gather`."""
        self._copy(self._head(ALL_GATHER, rows), rows.reshape(self.size, -1).view(np.uint8), range(self.size))

    def broadcast(self, array: np.ndarray, root: int) -> None:
        """As `Ring.broadcast`."""
        self._copy(self._head(BROADCAST + root, array), array.reshape(1, -1).view(np.uint8), [root])

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._meet(self._head(BARRIER, self._slots[0][:0]))

    def finish(self) -> None:
        """This rank calls no more: what others still call raises Mismatch there."""
        self._common.arrive(self._head(NONE, self._slots[0][:0]))

    def close(self) -> None:
        self._common.close()

    def _reduce_by_slots(self, begun: bytes, array: np.ndarray, operation: str) -> None:
        """Round by round: show a piece of each other chunk, add up that of the own one and show it, take the others."""
        parts = [array[part] for part in chunks(len(array), self.size)]
        most = SLOT // self.size // array.itemsize  # elements of a chunk that are shown at a time
        last: List[Tuple[np.ndarray, np.ndarray]] = []
        for at in range(0, max(1, *map(len, parts)), most):
            pieces = [part[at : at + most] for part in parts]
            shown = [slot[: self.size * most * array.itemsize].view(array.dtype) for slot in self._next_slots()]
            shown = [slot.reshape(self.size, most) for slot in shown]
            for rank, piece in enumerate(pieces):
                if rank != self.rank:
                    shown[self.rank][rank][: len(piece)] = piece
            if len(set(self._meet(begun))) > 1:
                self._meet()  # those whose arrays are in the common memory have shown a piece only now
            begun = b""
            _take(last)
            mine = pieces[self.rank]
            others = [(self.rank + step) % self.size for step in range(1, self.size)]
            _add_up(operation, [mine, *(shown[rank][self.rank][: len(mine)] for rank in others)])
            shown[self.rank][self.rank][: len(mine)] = mine
            last = [(pieces[rank], shown[rank][rank]) for rank in others]
        self._meet()
        _take(last)

    def _reduce_in_place(self, places: List[int], array: np.ndarray, operation: str) -> None:
        """Adds up the own chunk of all ranks' arrays, and writes it into each of them."""
        order = [(self.rank + step) % self.size for step in range(self.size)]
        views = [self._at(rank, places[rank], array.nbytes).view(array.dtype) for rank in order]
        mine, most = chunks(len(array), self.size)[self.rank], ADD_BLOCK // array.itemsize
        for begin in range(mine.start, mine.stop, most):
            total, *others = (view[begin : min(begin + most, mine.stop)] for view in views)
            _add_up(operation, [total, *others])
            for other in others:
                other[:] = total
        self._meet()

    def _copy(self, begun: bytes, rows: np.ndarray, roots: Sequence[int]) -> None:
        """Row i, of bytes, comes from rank `roots[i]` to all."""
        for at in range(0, max(1, rows.shape[1]), SLOT):
            pieces, slots = rows[:, at : at + SLOT], self._next_slots()
            if self.rank in roots:
                slots[self.rank][: pieces.shape[1]] = pieces[roots.index(self.rank)]
            self._meet(begun)
            begun = b""
            _take([(piece, slots[root]) for root, piece in zip(roots, pieces) if root != self.rank])

    def _next_slots(self) -> List[np.ndarray]:
        self._round += 1
        return [slots[self._round % SLOTS] for slots in self._slots]

    def _place(self, array: np.ndarray) -> int:
        """Where `array` is in the common memory: which of the memories that this rank has made, and the byte in it."""
        begin = _address(array)
        for index, made in enumerate(self._common.of[self.rank]):
            at = begin - _address(made)
            if index and 0 <= at < made.nbytes:
                return index << _BITS | at
        return _ELSEWHERE

    def _at(self, rank: int, place: int, size: int) -> np.ndarray:
        """The `size` bytes at a `_place` of that rank's."""
        at = place & (1 << _BITS) - 1
        return self._common.of[rank][place >> _BITS][at : at + size]

    def _head(self, kind: int, array: np.ndarray, place: int = _ELSEWHERE) -> bytes:
        self._number += 1
        return head(self._number, kind, array) + _PLACE.pack(place)

    def _meet(self, begun: bytes = b"") -> List[bytes]:
        """With the head of a collective that has `begun`: the others must call the same one, with arrays at any places.

        Returns the heads of all ranks.
        """
        heads = self._common.meet(begun)
        for rank, theirs in enumerate(heads):
            if theirs != begun and theirs[: -_PLACE.size] != begun[: -_PLACE.size]:
                raise Mismatch(f"this learner calls {said(begun)}, rank {rank} {said(theirs)}")
        return heads


def _place_of(said: bytes) -> int:
    place: int = _PLACE.unpack(said[-_PLACE.size :])[0]
    return place


def _add_up(operation: str, arrays: List[np.ndarray]) -> None:
    """Into the first, in their order."""
    for array in arrays[1:]:
        add(operation, arrays[0], array)
    finish(operation, arrays[0], len(arrays))


def _take(pieces: List[Tuple[np.ndarray, np.ndarray]]) -> None:
    for piece, slot in pieces:
        piece[:] = slot[: len(piece)]


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
