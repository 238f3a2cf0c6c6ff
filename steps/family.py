"""Who descends from whom among the processes that can be seen, and the end of those that belong together."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass

END_WITHIN = 5.0  # seconds for what was killed to be gone


@dataclass(frozen=True)
class Process:
    """`state` as in /proc: Z is a zombie, T stands still."""

    state: bytes
    parent: int
    group: int
    session: int


def processes() -> dict[int, Process]:
    """All that can be seen, by number."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stream:
                state, parent, group, session = stream.read().rpartition(b")")[2].split()[:4]
                found[int(name)] = Process(state, int(parent), int(group), int(session))
    return found


def children() -> list[int]:
    """Processes whose parent is this one."""
    return [pid for pid, process in processes().items() if process.parent == os.getpid()]


def descendants(first: int, among: dict[int, Process]) -> set[int]:
    """`first` and all that descend from it."""
    found, new = set[int](), {first}
    while new:
        found |= new
        new = {pid for pid, process in among.items() if process.parent in new} - found
    return found


def end_session(leader: int) -> None:
    """Kills `leader`, a child of this process, its session and its descendants, and whatever they start meanwhile."""
    until = time.monotonic() + END_WITHIN
    while time.monotonic() < until:
        among = processes()
        family = descendants(leader, among) | {pid for pid, process in among.items() if process.session == leader}
        family = {pid for pid in family if pid in among and among[pid].state != b"Z"}
        if not family:
            return
        for pid in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
