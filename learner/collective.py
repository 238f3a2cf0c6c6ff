"""What the ways of doing a collective agree on: its operations, how an array is divided, what it begins with."""

from __future__ import annotations

import struct
from typing import List

import numpy as np

from .contract import LOOK_EVERY as LOOK_EVERY

OPERATIONS = ("sum", "mean", "max")
ALL_GATHER, BARRIER, EMPTY, BROADCAST = range(3, 7)  # after the all-reduces of OPERATIONS; a broadcast of rank r is + r
NONE = (1 << 32) - 1  # the kind of what one calls that has finished
_HEAD = struct.Struct("=QIIQ")  # its number, kind, type of elements, bytes


def chunks(length: int, parts: int) -> List[slice]:
    """`length` elements in `parts` slices, as even as can be."""
    bounds = [length * part // parts for part in range(parts + 1)]
    return [slice(bounds[part], bounds[part + 1]) for part in range(parts)]


def add(operation: str, total: np.ndarray, other: np.ndarray) -> None:
    """`total` becomes that of both."""
    (np.maximum if operation == "max" else np.add)(total, other, out=total)


def finish(operation: str, total: np.ndarray, size: int) -> None:
    """`total` is that of all `size` ranks."""
    if operation == "mean":
        np.divide(total, size, out=total)


def head(number: int, kind: int, array: np.ndarray) -> bytes:
    """What is the same at all ranks that call the same collective, on all machines."""
    return _HEAD.pack(number, kind, ord(array.dtype.kind) << 8 | array.dtype.itemsize, array.nbytes)


def said(begun: bytes) -> str:
    """The collective that begins with the head `begun`, for people."""
    number, kind, dtype, size = _HEAD.unpack_from(begun)
    if kind == NONE:
        return "none any more: it has finished"
    names = [*(f"all_reduce of the {operation}" for operation in OPERATIONS), "all_gather", "barrier", "empty"]
    what = names[kind] if kind < len(names) else f"broadcast of rank {kind - BROADCAST}"
    return f"{what} ({size} bytes of {np.dtype(chr(dtype >> 8) + str(dtype & 0xFF)).name}) as its number {number}"
