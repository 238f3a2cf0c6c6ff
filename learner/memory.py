"""Memory without a name, which processes of one machine hand each other: nothing is left of it, whoever is killed."""

from __future__ import annotations

import contextlib
import mmap
import os

import numpy as np

MEMORY = b"m"  # what is said when it is handed over


def make(size: int, used_whole: bool = True) -> int:
    """A descriptor of `size` bytes, at least 1, all zero. Raises OSError where there is no room for them.

    What is not `used_whole` takes as much room as has been touched.
    """
    descriptor = os.memfd_create("ffdl", os.MFD_CLOEXEC)
    try:
        os.truncate(descriptor, max(size, 1))
        if used_whole:
            os.posix_fallocate(descriptor, 0, max(size, 1))  # now, not by a signal when it is touched
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def limit() -> int:
    """Bytes that this process may use: its container's limit, where it can be seen, or all that the machine has."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # another system, or no limit
        with open("/proc/self/cgroup", encoding="utf-8") as stream:
            path = next((line.rstrip("\n")[3:] for line in stream if line.startswith("0::")), "")
        with open(f"/sys/fs/cgroup{path}/memory.max", encoding="utf-8") as stream:
            most = min(most, int(stream.read()))
    return most


def mapped(descriptor: int, access: int = mmap.ACCESS_WRITE) -> np.ndarray:
    """All its bytes, for as long as the array lives."""
    return np.frombuffer(mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=access), np.uint8)
