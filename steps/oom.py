"""Telling out of memory apart: the oom_kill counter and the limit of the memory cgroup this process is in, v1 or v2."""

from __future__ import annotations

import os

_V1_NO_LIMIT = 1 << 60  # v1 says "none" by a number near 2**63


class MemoryCgroup:
    """The memory cgroup of this process, as seen from `root` (/sys/fs/cgroup); all None or 0 where there is none."""

    def __init__(self, root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> None:
        self._events = self._limit = ""
        for folder, events, limit in _candidates(root, membership):
            if os.path.exists(os.path.join(folder, events)):
                self._events, self._limit = os.path.join(folder, events), os.path.join(folder, limit)
                break

    def kills(self) -> int:
        """How many processes have been killed for memory so far."""
        for line in _read(self._events).splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.strip().isdigit():
                return int(value)
        return 0

    def limit(self) -> int | None:
        """Bytes, or None without a limit."""
        text = _read(self._limit).strip()
        return int(text) if text.isdigit() and int(text) < _V1_NO_LIMIT else None


def _candidates(root: str, membership: str) -> list[tuple[str, str, str]]:
    v1, v2 = ("memory.oom_control", "memory.limit_in_bytes"), ("memory.events", "memory.max")
    found = []
    for line in _read(membership).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in controllers.split(","):
            # inside a container the path is often the host's, while the mount shows the container's own group
            found += [(f"{root}/memory{path}", *v1), (f"{root}/memory", *v1)]
        elif number == "0" and not controllers:
            found += [(f"{root}{path}", *v2), (root, *v2)]
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
