"""A job's log lines: those written until now in the order of their times, then those that come.

They come from the pods. Where a learner's pod is gone, from the file in which its agent has kept them, which holds the
lines of all its attempts and no times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ...learner import contract
from ..base import EngineError, LogLine, Refused
from ..status import HALTED, JobStatus, job_status
from . import stored
from .access import PODS, WORKFLOWS, Api, Object
from .following import Follower
from .podlog import LogGone, PodLog
from .pods import CARRIER_ROLE, Attempt, attempts, live
from .watching import GONE, Feed, Source

if TYPE_CHECKING:
    from ...workflows.site import Site

MOST_STREAMS = 64  # that are open at once
LOOK = 0.2  # seconds


@dataclass(frozen=True)
class Selection:
    """Which lines are wanted; `learner` and `attempt` count from 1, `since` is a unix time."""

    learner: int | None = None
    step: str | None = None
    attempt: int | None = None
    tail: int | None = None
    since: float | None = None

    def wants(self, attempt: Attempt) -> bool:
        name = self.step or (f"learner-{self.learner}" if self.learner is not None else None)
        right = attempt.source == name if name else attempt.learner is not None
        return right and self.attempt in (None, attempt.number)


@dataclass(frozen=True)
class Job:
    """Where a job's lines are looked for. `site` is asked for only where a store has to be read."""

    api: Api
    site: Callable[[], Site]
    workflow: Object

    @property
    def id(self) -> str:
        return str(self.workflow["metadata"]["name"])

    @property
    def over(self) -> bool:
        return over(job_status(self.workflow))

    def present(self) -> set[str]:
        """The job's pods that are there."""
        labels = f"{contract.LABEL_JOB}={self.id},{contract.LABEL_ROLE}!={CARRIER_ROLE}"
        return {pod["metadata"]["name"] for pod in self.api.list(PODS, labels, metadata=True)}

    def files(self, names: dict[str, str], stack: ExitStack) -> dict[str, Path]:
        """Log files of the job, until `stack` is closed."""
        for pod in live(self.workflow, "checkpoint", ("Running",)):
            with suppress(EngineError):
                return stack.enter_context(stored.on_volume(self.api, pod, names))
        return stack.enter_context(stored.stored(self.api, self.site(), self.id, names))


def over(status: JobStatus) -> bool:
    return status.terminal or status.state == HALTED


def read(job: Job, wanted: Selection) -> Iterator[LogLine]:
    """What was written until now; several sources in the order of their times."""
    pods = [PodLog(job.api, attempt) for attempt in attempts(job.workflow) if wanted.wants(attempt)]
    return _history(job, pods, wanted)


def _history(job: Job, pods: Iterable[PodLog], wanted: Selection) -> Iterator[LogLine]:
    by_source: dict[str, list[PodLog]] = {}
    for pod in pods:
        by_source.setdefault(pod.attempt.source, []).append(pod)
    with ExitStack() as stack:
        streams: list[Iterable[LogLine]] = []
        files = _kept(job, by_source, wanted, stack) if by_source else {}
        for source, several in by_source.items():
            lines = _kept_lines(files[source], several) if source in files else _written(several, wanted)
            recent = _since(lines, wanted.since)
            streams.append(recent if wanted.tail is None else deque(recent, maxlen=wanted.tail))
        if len(streams) > MOST_STREAMS:
            yield from sorted(chain.from_iterable(streams), key=_moment)
        else:
            yield from heapq.merge(*streams, key=_moment)


def _kept(job: Job, by_source: dict[str, list[PodLog]], wanted: Selection, stack: ExitStack) -> dict[str, Path]:
    """Learners of whose pods some are gone -> the files with their lines. Raises Refused where there can be none."""
    present = job.present()
    lost = {
        source: [pod for pod in several if pod.attempt.ran and pod.attempt.pod not in present]
        for source, several in by_source.items()
    }
    names = {f"{source}/{contract.TRAINING_LOG}": source for source, gone in lost.items() if gone}
    steps = [source for source in names.values() if not source.startswith("learner-")]
    if steps and all(pod.attempt.pod not in present for pod in by_source[steps[0]]):
        raise Refused(f"the pod of {steps[0]} is gone, and with it what it wrote; learners' logs alone are kept")
    if wanted.attempt is not None and names and not steps:
        raise Refused(
            f"the pod of attempt {wanted.attempt} is gone; what is kept of it is together with the other attempts: "
            "leave --attempt out"
        )
    learners = {name: stored.as_stored(name) for name, source in names.items() if source not in steps}
    if not learners:
        return {}
    try:
        found = job.files(learners, stack)
    except EngineError:
        if not present.intersection(pod.attempt.pod for several in by_source.values() for pod in several):
            raise
        return {}  # what the pods that are there have is better than nothing
    return {names[name]: file for name, file in found.items()}


def _kept_lines(file: Path, pods: list[PodLog]) -> Iterator[LogLine]:
    """The lines in the file, then those of the last pod that are not in it yet."""
    source, number = pods[-1].attempt.source, pods[-1].attempt.number
    with open(file, encoding="utf-8", errors="replace", newline="\n") as stream:
        kept = [line.rstrip("\n") for line in stream]
    yield from (LogLine(source, number, None, text) for text in kept)
    with suppress(LogGone):
        newest = list(pods[-1].read())
        yield from newest[_overlap(kept, [line.text for line in newest]) :]
    for pod in pods[:-1]:
        pod.closed = True


def _overlap(before: list[str], after: list[str]) -> int:
    """How many lines at the end of `before` are those at the beginning of `after`."""
    for size in range(min(len(before), len(after)), 0, -1):
        if before[-size] == after[0] and before[-size:] == after[:size]:
            return size
    return 0


def _written(pods: list[PodLog], wanted: Selection) -> Iterator[LogLine]:
    for pod in pods:
        with suppress(LogGone):
            yield from pod.read(wanted.since, wanted.tail)


def _since(lines: Iterable[LogLine], since: float | None) -> Iterator[LogLine]:
    return (line for line in lines if since is None or line.time is None or line.time >= since)


def _moment(line: LogLine) -> float:
    return line.time or 0.0


def follow(job: Job, wanted: Selection) -> Iterator[LogLine]:
    """Lines as they come, until the job has ended or is halted."""
    follower = Follower(job.api, wanted.wants)
    feed = Feed(job.api, Source(WORKFLOWS, fields=f"metadata.name={job.id}"))
    try:
        yield from _history(job, follower.admit(job.workflow), wanted)
        follower.begin()
        status = job_status(job.workflow)
        while not over(status):
            yield from follower.lines(LOOK)
            while (change := feed.next(0.0)) is not None:
                if change.what == GONE or not change.objects:
                    return
                status = job_status(change.objects[0])
                follower.admit(change.objects[0])
                follower.begin()
        yield from follower.rest()
    finally:
        feed.close()
        follower.close()
