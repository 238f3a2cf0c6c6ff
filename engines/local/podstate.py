"""What a supervisor writes down while its pod lives, so that others can see how it is, and end it if it must be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from . import processes
from .cgroup import Cgroup
from .pod import ContainerEnd
from .running import INIT, Running


def announcement(mark: str, isolation: str, groups: Iterable[Cgroup | None]) -> dict[str, Any]:
    """`started`: this process is the pod's supervisor; its processes are found by their mark and in these cgroups."""
    return {
        "supervisor": {**_identity(os.getpid()), "boot": processes.boot_id()},
        "mark": mark,
        "isolation": isolation,
        "cgroups": [{"path": group.path, "version": group.version} for group in groups if group is not None],
    }


def state(live: list[Running], ends: Mapping[str, ContainerEnd], started_at: float | None) -> dict[str, Any]:
    """`state.json`: the containers that run, and how others have ended.

    `up`: all that can run do, so that the pod counts as Running.
    """
    up = [running for running in live if running.released]
    return {
        "up": bool(ends) or (len(up) == len(live) and not any(running.kind == INIT for running in up)),
        "ready": all(running.ready for running in live),
        "started_at": started_at,
        "containers": {
            running.what.name: {"first": _identity(running.first), "main": _identity(running.main)} for running in up
        },
        "ends": {name: asdict(end) for name, end in ends.items()},
    }


def _identity(pid: int | None) -> dict[str, int]:
    found = None if pid is None else processes.stat(pid)
    return {"pid": pid or 0, "start": found.start if found else 0}
