"""A pod's memory limit as a cgroup, version 1 or 2, where this process may make one."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from . import processes

SWITCH_ENV = "FFDL_CGROUP"  # `none`: make no cgroups, sample memory instead


@dataclass(frozen=True)
class Cgroup:
    """`path` is the folder in the cgroup file system. Nothing exists before `create`."""

    path: str
    version: int

    def create(self, limit: int) -> bool:
        """Makes it with a limit of `limit` bytes, swap included. False, and nothing is left, where that can't be."""
        try:
            os.mkdir(self.path)
        except OSError:
            return False
        try:
            if self.version == 1:
                self._write("memory.limit_in_bytes", limit)
                self._try_write("memory.memsw.limit_in_bytes", limit)
            else:
                self._write("memory.max", limit)
                self._try_write("memory.swap.max", 0)
                self._try_write("memory.oom.group", 1)  # the whole container goes, as on Kubernetes
        except OSError:
            self.remove()
            return False
        return True

    def add(self, pid: int) -> bool:
        """Moves a process in; its children to come are born there. False if the kernel refuses."""
        return self._try_write("cgroup.procs", pid)

    def oom_kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        text = self._read("memory.oom_control" if self.version == 1 else "memory.events")
        counts = dict(line.split()[:2] for line in text.splitlines() if len(line.split()) >= 2)
        return int(counts.get("oom_kill", 0))

    def kill(self) -> bool:
        """Sends SIGKILL to what is in it. True if there was something."""
        pids = [int(line) for line in self._read("cgroup.procs").split()]
        if pids and not self._try_write("cgroup.kill", 1):
            for pid in pids:
                processes.send(pid, signal.SIGKILL)
        return bool(pids)

    def remove(self, seconds: float = 2.0) -> bool:
        """Idempotent. False if it is still in use after `seconds`."""
        deadline = time.monotonic() + seconds
        while os.path.isdir(self.path):
            try:
                os.rmdir(self.path)
            except OSError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.005)
        return True

    def _read(self, name: str) -> str:
        try:
            with open(os.path.join(self.path, name)) as stream:
                return stream.read()
        except OSError:
            return ""

    def _write(self, name: str, value: int) -> None:
        with open(os.open(os.path.join(self.path, name), os.O_WRONLY), "wb", buffering=0) as stream:
            stream.write(str(value).encode())

    def _try_write(self, name: str, value: int) -> bool:
        try:
            self._write(name, value)
        except OSError:
            return False
        return True


def plan(name: str) -> Cgroup | None:
    """The cgroup that a pod could have, not made yet. None where none can be made, or SWITCH_ENV says so."""
    if os.environ.get(SWITCH_ENV) == "none":
        return None
    with open("/proc/self/cgroup") as stream:
        own = _own_groups(stream.read())
    with open("/proc/self/mountinfo") as stream:
        mounts = _hierarchies(stream.read())
    if "memory" in mounts and "memory" in own:
        for base in _upwards(mounts["memory"], own["memory"]):
            if os.access(base, os.W_OK):
                return Cgroup(f"{base}/ffdl-{name}", 1)
    if "" in mounts and "" in own:
        for base in _upwards(mounts[""], own[""]):
            if os.access(base, os.W_OK) and os.access(f"{base}/cgroup.procs", os.W_OK) and _grants_memory(base):
                return Cgroup(f"{base}/ffdl-{name}", 2)
    return None


def _own_groups(text: str) -> dict[str, str]:
    """/proc/self/cgroup: controller -> this process's path in its hierarchy. The controller of version 2 is ''."""
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _hierarchies(text: str) -> dict[str, tuple[str, str]]:
    """/proc/self/mountinfo: controller -> (where its hierarchy is mounted, what part of it). Version 2 is ''."""
    found = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        root, target = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            found[""] = (target, root)
        elif kind == "cgroup" and "memory" in options.split(","):
            found["memory"] = (target, root)
    return found


def _upwards(hierarchy: tuple[str, str], own: str) -> list[str]:
    """The folders of this process's own cgroup and of those above it, as far as they are mounted."""
    target, root = hierarchy
    below = os.path.relpath(own, root)
    parts = [] if below == "." or below.startswith("..") else below.split("/")
    return ["/".join([target, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _grants_memory(base: str) -> bool:
    try:
        with open(f"{base}/cgroup.subtree_control") as stream:
            return "memory" in stream.read().split()
    except OSError:
        return False
