"""Memory without a name, which processes of one machine hand each other: nothing is left of it, whoever is killed."""

from __future__ import annotations

import mmap
import os

import numpy as np

MEMORY = b"m"  # what is said when it is handed over


def make(size: int) -> int:
    """A descriptor of `size` bytes, at least 1, all zero. Raises OSError where there is no room for them."""
    descriptor = os.memfd_create("ffdl", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, max(size, 1))  # now, not by a signal when it is touched
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def mapped(descriptor: int, access: int = mmap.ACCESS_WRITE) -> np.ndarray:
    """All its bytes, for as long as the array lives."""
    return np.frombuffer(mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=access), np.uint8)
