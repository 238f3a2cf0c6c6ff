"""The cluster's cgroup: the kubelet's pods are below it, and in `system` every process that was started for it.

So whatever the cluster ever started is found by its cgroup, also after a crash of everything that knew of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """The roots of all cgroup hierarchies of the machine: one with cgroup v2, one a controller with v1."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    types = ("cgroup", "cgroup2")
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = {Path(mount[1]).resolve() for mount in mounts if mount[2] in types}
    return sorted(root for root in found if root.is_relative_to(MOUNT))


def tracked(name: str) -> Path:
    """The cgroup, in the hierarchy in which processes are followed."""
    for root in (MOUNT, MOUNT / "pids", MOUNT / "memory"):
        if (root / "cgroup.procs").exists():
            return root / name
    raise FileNotFoundError(f"{MOUNT} has neither cgroup v2 nor the pids or memory controller of v1")


def entry(name: str) -> Path:
    """The file that a process's id is written to for it to be one of the cluster's own."""
    return tracked(name) / "system" / "cgroup.procs"


def create(name: str) -> None:
    """Make the cgroup in all hierarchies, as the kubelet demands."""
    for root in hierarchies():
        folder = root / name
        folder.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # v1 leaves them empty, and then no process may enter
            if (folder / setting).exists() and (root / setting).exists():
                (folder / setting).write_text((root / setting).read_text())
    entry(name).parent.mkdir(exist_ok=True)


def folders(name: str) -> list[Path]:
    """All cgroups of the cluster, in all hierarchies, the deepest first."""
    tops = [root / name for root in hierarchies()]
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top, topdown=False)]


def members(name: str) -> list[int]:
    """The ids of all processes of the cluster and of its pods."""
    pids: set[int] = set()
    for folder in folders(name):
        with contextlib.suppress(OSError):  # gone meanwhile
            pids.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
    return sorted(pids)


def end(name: str, within: float = 30) -> list[int]:
    """Kill every process of the cluster; returns the ids of those still there after `within` seconds."""
    limit = time.monotonic() + within
    while (left := members(name)) and time.monotonic() < limit:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return left


def remove(name: str, within: float = 10) -> list[Path]:
    """Remove the empty cgroups; returns those that could not be."""
    limit = time.monotonic() + within
    while (left := folders(name)) and time.monotonic() < limit:
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if folders(name):
            time.sleep(0.05)
    return left
