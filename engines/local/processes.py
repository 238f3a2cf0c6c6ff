"""Processes as /proc shows them: who is alive, who descends from whom, who carries a pod's mark, what they hold."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MARK_ENV = "FFDL_POD"  # in the environment of every process of a pod: what is left of one is found by it

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Stat:
    """`start` is in clock ticks since boot: with the pid it names a process for as long as the machine is up."""

    pid: int
    state: str
    parent: int
    session: int
    start: int

    @property
    def alive(self) -> bool:
        return self.state not in ("Z", "X")


def stat(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:
            fields = stream.read(4096).rpartition(b")")[2].split()
    except OSError:
        return None
    return Stat(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19])) if len(fields) > 19 else None


def everything() -> list[Stat]:
    found = (stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def alive(pid: int, start: int) -> bool:
    """Whether the process that had `pid` and began at `start` still runs."""
    found = stat(pid)
    return found is not None and found.start == start and found.alive


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()


def descendants(pids: Iterable[int], processes: list[Stat] | None = None) -> list[int]:
    """Children, grandchildren and so on of `pids`, themselves left out."""
    children: dict[int, list[int]] = {}
    for process in everything() if processes is None else processes:
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    todo = list(pids)
    while todo:
        below = children.pop(todo.pop(), [])
        found += below
        todo += below
    return found


def remnants(mark: str, leaders: Iterable[tuple[int, int]]) -> list[Stat]:
    """Living processes of the pod or container with this mark: by their environment, by the sessions that main
    processes lead, and their descendants. The mark of a pod is the beginning of its containers'.

    `leaders` are (pid, start): a session number isn't given to others while a member lives.
    """
    everyone = everything()
    starts = {p.pid: p.start for p in everyone}
    since = {pid: start for pid, start in leaders if pid and starts.get(pid, start) == start}
    found = {p.pid for p in everyone if p.session in since and p.start >= since[p.session]}
    wanted = f"\0{MARK_ENV}={mark}".encode()
    for process in everyone:
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as stream:
                if _marked(b"\0" + stream.read() + b"\0", wanted):
                    found.add(process.pid)
        except OSError:
            continue  # gone, or another user's
    found.update(descendants(found, everyone))
    found.discard(os.getpid())
    return [p for p in everyone if p.pid in found and p.alive]


def _marked(environment: bytes, wanted: bytes) -> bool:
    _, found, after = environment.partition(wanted)
    return bool(found) and after[:1] in (b"\0", b".")


def kill(process: Stat) -> None:
    """SIGKILL, unless its pid has been given to another meanwhile."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel without them
        if alive(process.pid, process.start):
            send(process.pid, signal.SIGKILL)
        return
    try:
        if alive(process.pid, process.start):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(handle)


def send(pid: int, number: int) -> None:
    """Signals a process whose pid is known to be its own still, as one's unreaped child's is. Gone is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def until(condition: Callable[[], bool], seconds: float, interval: float = 0.005) -> bool:
    """Waits for `condition` to turn true; false if it did not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def resident(pids: Iterable[int]) -> int:
    """Resident memory in bytes, shared pages counted once for each process: never less than what is used."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb", buffering=0) as stream:
                total += int(stream.read(256).split()[1]) * _PAGE
        except (OSError, IndexError):
            continue
    return total


def proportional(pids: Iterable[int]) -> int:
    """Memory in bytes, shared pages counted in parts (PSS); resident memory of a process that doesn't tell."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
                lines = [line.split() for line in stream if line.startswith(b"Pss:")]
            total += int(lines[0][1]) * 1024
        except (OSError, IndexError):
            total += resident([pid])
    return total
