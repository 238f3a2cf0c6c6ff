"""A job's log lines: those written until now in the order of their times, then those that come.

They come from the pods. Where a learner's pod is gone, from the file in which its agent has kept them, which holds the
lines of all its attempts and no times.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from ...learner import contract
from ..base import EngineError, LogLine, Refused, Selection
from ..nodes import unix_time
from ..status import HALTED, JobStatus
from . import stored
from .access import PODS, WORKFLOWS, Api, Object
from .following import Follower
from .patience import patiently
from .podlog import LogGone, PodLog
from .pods import CARRIER_ROLE, Attempt, attempts, live
from .reasons import status_of
from .watching import GONE, Feed, Source

if TYPE_CHECKING:
    from ...workflows.site import Site

MOST_STREAMS = 64  # that are open at once
MOST_OVERLAP = 100  # lines by which the end of a file is found again in a pod's output
LOOK, HALT_LOOK = 0.2, 1.0  # seconds


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
        return over(status_of(self.api, self.workflow))

    def present(self) -> dict[str, float]:
        """The job's pods that are there, and since when (unix seconds)."""
        labels = f"{contract.LABEL_JOB}={self.id},{contract.LABEL_ROLE}!={CARRIER_ROLE}"
        found = (pod["metadata"] for pod in self.api.list(PODS, labels, metadata=True))
        return {about["name"]: unix_time(about["creationTimestamp"]) or 0.0 for about in found}

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
    pods = [PodLog(job.api, attempt) for attempt in attempts(job.workflow) if _is_wanted(attempt, wanted)]
    return _history(job, pods, wanted)


def _history(job: Job, pods: Iterable[PodLog], wanted: Selection, follow: bool = False) -> Iterator[LogLine]:
    by_source: dict[str, list[PodLog]] = {}
    for pod in pods:
        by_source.setdefault(pod.attempt.source, []).append(pod)
    with ExitStack() as stack:
        streams: list[Iterable[LogLine]] = []
        files = _kept(job, by_source, wanted, stack) if by_source else {}
        for source, several in by_source.items():
            lines = _kept_lines(job, files[source], several, follow) if source in files else _written(several, wanted)
            recent = _since(lines, wanted.since)
            streams.append(recent if wanted.tail is None else deque(recent, maxlen=wanted.tail))
        if len(streams) > MOST_STREAMS:
            yield from sorted(chain.from_iterable(streams), key=_moment)
        else:
            yield from heapq.merge(*streams, key=_moment)


def _kept(job: Job, by_source: dict[str, list[PodLog]], wanted: Selection, stack: ExitStack) -> dict[str, Path]:
    """Learners whose pods do not have all that they wrote -> the files with it. Raises Refused where there is none."""
    present = job.present()
    there = {name: [pod for pod in several if pod.attempt.pod in present] for name, several in by_source.items()}
    lost = [
        name for name, several in by_source.items() if any(p.attempt.begun for p in several if p not in there[name])
    ]
    steps = [name for name in lost if not contract.is_member_name(name)]
    if steps and not there[steps[0]]:
        raise _gone(steps[0])
    if wanted.attempt is not None and len(lost) > len(steps):
        raise _together(wanted.attempt)
    if wanted.attempt is None:
        members = [name for name in there if contract.is_member_name(name) and name not in lost]
        lost += [name for name in members if any(_lacks(pod, wanted) for pod in there[name])]
    names = {f"{name}/{contract.TRAINING_LOG}": name for name in lost if name not in steps}
    if not names:
        return {}
    try:
        found = job.files({name: stored.as_stored(name) for name in names}, stack)
    except EngineError:
        if not any(there.values()):
            raise
        return {}  # what the pods that are there have is better than nothing
    return {names[name]: file for name, file in found.items()}


def _is_wanted(attempt: Attempt, wanted: Selection) -> bool:
    name = wanted.step or (f"learner-{wanted.learner}" if wanted.learner is not None else None)
    right = attempt.source == name if name else attempt.learner is not None
    return right and wanted.attempt in (None, attempt.number)


def _lacks(pod: PodLog, wanted: Selection) -> bool:
    """Whether the pod has less of its attempt's lines than are wanted."""
    try:
        if pod.is_whole():
            return False
        if wanted.tail is None and wanted.since is None:
            return True
        enough = wanted.tail or 1  # what is kept has no times: any line of the pod's is better
        has = islice(PodLog(pod.api, pod.attempt).read(wanted.since, wanted.tail), enough)
        return sum(1 for _ in has) < enough
    except LogGone:
        return True


def _kept_lines(job: Job, file: Path, pods: list[PodLog], follow: bool) -> Iterator[LogLine]:
    """The lines in the file; to be followed, also those of the last pod that are not in it yet."""
    newest = pods[-1]
    last: deque[str] = deque(maxlen=MOST_OVERLAP)
    with open(file, encoding="utf-8", errors="replace", newline="\n") as stream:
        for text in stream:
            last.append(text.rstrip("\n"))
            yield LogLine(newest.attempt.source, newest.attempt.number, None, last[-1])
    for pod in pods if newest.attempt.ended else pods[:-1]:
        pod.closed = True
    if follow and not newest.closed:
        with suppress(LogGone):
            known = _known(list(last), PodLog(job.api, newest.attempt).read())
            yield from islice(newest.read(), known, None)


def _known(end: Sequence[str], lines: Iterable[LogLine]) -> int:
    """How many of `lines` come before or are the `end` of what was read elsewhere; 0 if nothing of it is there."""
    if not end:
        return 0
    window: deque[str] = deque(maxlen=len(end))
    for number, line in enumerate(lines, 1):
        window.append(line.text)
        if number == len(end) and (size := _overlap(end, list(window))):
            return size
        if number > len(end) and line.text == end[-1] and list(window) == end:
            return number
    return _overlap(end, list(window)) if len(window) < len(end) else 0


def _overlap(before: Sequence[str], after: Sequence[str]) -> int:
    """How many lines at the end of `before` are those at the beginning of `after`."""
    for size in range(min(len(before), len(after)), 0, -1):
        if before[-size] == after[0] and before[-size:] == after[:size]:
            return size
    return 0


def _written(pods: list[PodLog], wanted: Selection) -> Iterator[LogLine]:
    """What the pods of one source have. Raises Refused if that is nothing any more, and nothing is kept of it."""
    there = False
    for pod in pods:
        with suppress(LogGone):
            yield from pod.read(wanted.since, wanted.tail)
            there = True
    if there or not any(pod.attempt.begun for pod in pods):
        return
    if not pods[0].attempt.kept:
        raise _gone(pods[0].attempt.source)
    if wanted.attempt is not None:
        raise _together(wanted.attempt)


def _gone(step: str) -> Refused:
    return Refused(f"the pod of {step} is gone, and with it what it wrote; learners' logs alone are kept")


def _together(attempt: int) -> Refused:
    return Refused(
        f"the pod of attempt {attempt} is gone; what is kept of it is together with the other attempts: "
        "leave --attempt out"
    )


def of_record(api: Api, site: Site, job_id: str, learners: int, wanted: Selection) -> Iterator[LogLine]:
    """What is stored of a job whose Workflow is gone. Raises Refused for what is not kept so long."""
    if wanted.step is not None or wanted.attempt is not None:
        raise Refused(f"the Workflow of {job_id} is gone: only whole logs of learners are kept")
    chosen = range(learners) if wanted.learner is None else (wanted.learner - 1,)
    names = {
        f"{contract.learner_name(index)}/{contract.TRAINING_LOG}": contract.learner_name(index) for index in chosen
    }
    with stored.stored(api, site, job_id, {name: stored.as_stored(name) for name in names}) as files:
        for name, file in files.items():
            with open(file, encoding="utf-8", errors="replace", newline="\n") as stream:
                lines = (LogLine(names[name], 1, None, text.rstrip("\n")) for text in stream)
                yield from lines if wanted.tail is None else deque(lines, maxlen=wanted.tail)


def _since(lines: Iterable[LogLine], since: float | None) -> Iterator[LogLine]:
    return (line for line in lines if since is None or line.time is None or line.time >= since)


def _moment(line: LogLine) -> float:
    return line.time or 0.0


def follow(job: Job, wanted: Selection) -> Iterator[LogLine]:
    """Lines as they come, until the job has ended or is halted."""
    follower = Follower(job.api, lambda attempt: _is_wanted(attempt, wanted))
    feed = Feed(job.api, Source(WORKFLOWS, fields=f"metadata.name={job.id}"))
    try:
        yield from _history(job, follower.admit(job.workflow), wanted, follow=True)
        follower.begin()
        workflow, looked = job.workflow, time.monotonic()
        status = status_of(job.api, workflow)
        while not over(status):
            yield from follower.lines(LOOK)
            if status.halting and time.monotonic() - looked > HALT_LOOK:  # pods may go without a change of the Workflow
                status, looked = patiently(partial(status_of, job.api, workflow)), time.monotonic()
            while (change := feed.next(0.0)) is not None:
                if change.what == GONE or not change.objects:
                    return
                workflow = change.objects[0]
                status, looked = patiently(partial(status_of, job.api, workflow)), time.monotonic()
                follower.admit(workflow)
                follower.begin()
        yield from follower.rest()
    finally:
        feed.close()
        follower.close()
