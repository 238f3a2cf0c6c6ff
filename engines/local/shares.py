"""What the pods of a Workflow that is no training job hold of this machine: each its own, from its start to its end."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from . import leases
from .state import Home, Job


class NoRoomError(Exception):
    """A pod for which there is no room yet. The text says what it lacks."""


class Shares:
    """Of `job`. `live` are its pods that have not ended: what others hold was left by a runner that died."""

    def __init__(self, home: Home, job: Job, live: Container[str]) -> None:
        self._home, self._job = home, job
        held = leases.held(home, job)
        self._pods = set(held.pods) if held is not None else set()
        self._waited, self._waits = True, False  # in the round before, and in this one
        self.release([name for name in self._pods if name not in live])

    def take(self, pod: str, template: Mapping[str, Any]) -> list[int]:
        """The GPUs of `pod`, for which there is room from now on. Raises NoRoomError, ValueError."""
        wanted = leases.template_demand(template, small=True)
        if wanted == leases.Demand():
            return []
        capacity = leases.Capacity.of_this_machine()
        if lack := capacity.lacks(wanted):
            raise NoRoomError(f"it {lack}")
        got = leases.acquire_for_pod(self._home, self._job, pod, wanted, capacity)
        if isinstance(got, str):
            self._waits = True
            raise NoRoomError(got)
        self._pods.add(pod)
        return got

    def settle(self) -> None:
        """Ends a round of `take`: a job none of whose pods waits for room any more is not in the others' way."""
        if self._waited and not self._waits:
            leases.leave_line(self._home, self._job)
        self._waited, self._waits = self._waits, False

    def release(self, ended: Iterable[str]) -> None:
        """Gives back what these pods hold, if they hold anything."""
        gone = self._pods.intersection(ended)
        if gone:
            self._pods -= gone
            leases.release_pods(self._home, self._job, lambda name: name not in gone)
