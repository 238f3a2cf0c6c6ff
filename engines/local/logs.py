"""What a job's pods wrote, and what happened to them: log lines, metric records, events."""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from ...learner import contract
from ...workflows.errors import listed
from ..base import NORMAL, WARNING, Event, LogLine, Refused, Selection
from ..nodes import is_training_job
from ..status import job_status
from ..tree import node_path
from .log_files import LogFile, log_files
from .notify import Watcher
from .podfiles import open_beneath
from .state import Job

FOLLOW_LOOK = 1.0
PAUSE = 2.0  # after a look, in times of what it took: of a large Workflow each takes a while
MOST_OPEN = 256  # files that are read at once
_WITH_EVENTS = ("Pod", "Retry", "DAG", "Steps", "Suspend", "Container")  # kinds of nodes
_PARTS = ("meta", "etimes", "values")  # of a metrics record


class _Tail:
    """Reads a growing log file line by line."""

    def __init__(self, file: LogFile) -> None:
        self.source = file.source
        self._file, self._offset, self._rest = file, 0, b""

    def lines(self, final: bool) -> Iterator[LogLine]:
        with contextlib.suppress(FileNotFoundError), open(self._file.path, "rb") as stream:
            stream.seek(self._offset)
            for raw in stream:
                self._offset += len(raw)
                raw = self._rest + raw
                self._rest = b""
                if not raw.endswith(b"\n") and not final:
                    self._rest = raw
                    return
                yield self._parse(raw.rstrip(b"\n"))

    def _parse(self, raw: bytes) -> LogLine:
        stamp, _, text = raw.decode(errors="replace").partition(" ")
        try:
            moment = datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
        except ValueError:
            moment, text = None, raw.decode(errors="replace")
        return LogLine(self._file.source, self._file.attempt, moment, text)


def _since(lines: Iterator[LogLine], since: float | None) -> Iterator[LogLine]:
    return (line for line in lines if since is None or line.time is None or line.time >= since)


def read(job: Job, wanted: Selection) -> Iterator[LogLine]:
    """What was written until now; several sources in the order of their times."""
    workflow = job.workflow()
    files = log_files(job, workflow, wanted)
    if not files and wanted.step is not None and not is_training_job(workflow):
        known = dict.fromkeys(file.source for file in log_files(job, workflow, Selection()))
        there = f"there are {listed(list(known))}" if known else "nothing has begun"
        raise Refused(f"{job.id} has no node {wanted.step} that wrote anything; {there}")
    yield from _gather([_Tail(file) for file in files], wanted, wanted.tail, final=True)


def _gather(tails: Iterable[_Tail], wanted: Selection, last: int | None, final: bool) -> Iterator[LogLine]:
    """New lines of all, the `last` ones of each source."""
    by_source: dict[str, list[_Tail]] = {}
    for tail in tails:
        by_source.setdefault(tail.source, []).append(tail)
    streams: list[Iterable[LogLine]] = []
    for several in by_source.values():
        lines = _since((line for tail in several for line in tail.lines(final)), wanted.since)
        streams.append(lines if last is None else deque(lines, maxlen=last))
    return _merged(streams)


def _merged(streams: Sequence[Iterable[LogLine]]) -> Iterator[LogLine]:
    """In the order of their times, a line of each in memory: logs may be larger than that."""
    if len(streams) > MOST_OPEN:
        return iter(sorted(chain(*streams), key=_moment))
    return heapq.merge(*streams, key=_moment)


def _moment(line: LogLine) -> float:
    return line.time or 0.0


def follow(job: Job, wanted: Selection, keep_alive: Callable[[], object]) -> Iterator[LogLine]:
    """Lines as they come, until the job has ended or is halted. `keep_alive` is called now and then."""
    tails: dict[Path, _Tail] = {}
    watcher = Watcher(appends=True)
    watcher.watch(job.control)
    last = wanted.tail
    done: set[Path] = set()
    try:
        while True:
            began = time.monotonic()
            workflow = job.workflow()
            status = job_status(workflow, job.report())
            over = status.terminal or status.state == "HALTED"
            files = [file for file in log_files(job, workflow, wanted) if file.path not in done]
            for file in files:
                if file.path not in tails:
                    watcher.watch(file.folder)
                    tails[file.path] = _Tail(file)
            took = time.monotonic() - began
            yield from _gather(tails.values(), wanted, last, final=over)
            last = None
            if over:
                return
            for file in files:
                if file.ended:  # and has been read since
                    done.add(file.path)
                    watcher.forget(file.folder)
                    yield from _since(tails.pop(file.path).lines(final=True), wanted.since)
            time.sleep(min(FOLLOW_LOOK, PAUSE * took))
            watcher.wait(FOLLOW_LOOK)
            keep_alive()
    finally:
        watcher.close()


def metrics(job: Job, follow: bool) -> Iterator[dict[str, Any]]:
    """EMetrics records of all learners, oldest first; with `follow` until the job has ended or is halted."""
    offsets: dict[str, int] = {}
    watcher = Watcher(appends=True)
    try:
        while True:
            status = job_status(job.workflow(), job.report())
            over = not follow or status.terminal or status.state == "HALTED"
            folder: Path | None = None
            records: list[dict[str, Any]] = []
            watcher.watch(job.control)
            while folder != (now := job.log_folder()):  # the end of the job may move it under who reads it
                folder = now
                for place in _log_places(folder):
                    watcher.watch(folder / place)
                    lines, offsets[place] = _records(job.path, folder / place, offsets.get(place, 0))
                    records.extend(lines)
            yield from sorted(records, key=_when)
            if over:
                return
            watcher.wait(FOLLOW_LOOK)
    finally:
        watcher.close()


def _log_places(folder: Path) -> list[str]:
    """Where below `folder` metrics may be: in itself, and in each learner's own."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return ["", *sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))]
    return [""]


def _when(record: dict[str, Any]) -> float:
    moment = record.get("meta", {}).get("time")
    return moment if isinstance(moment, (int, float)) else 0.0


def _records(base: Path, folder: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Whole records from `offset` on. Learners may write there too: no link beneath `base` is followed, none but a
    regular file read, no bad line believed."""
    try:
        descriptor = open_beneath(str(base), str((folder / contract.METRICS_FILE).relative_to(base)))
    except OSError:
        return [], offset
    found = []
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(offset)
        for raw in stream:
            if not raw.endswith(b"\n"):
                break
            offset += len(raw)
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(raw)
                if isinstance(value, dict) and all(isinstance(value.get(part, {}), dict) for part in _PARTS):
                    found.append(value)
    return found, offset


def events(workflow: dict[str, Any]) -> list[Event]:
    """What happened to the job's nodes, read off their times and messages."""
    found = []
    training, name = is_training_job(workflow), workflow["metadata"]["name"]
    for node in workflow["status"].get("nodes", {}).values():
        if node.get("type") not in _WITH_EVENTS:
            continue
        source = (node.get("displayName") or node["name"]) if training else node_path(name, node)
        if started := _time(node.get("startedAt")):
            found.append(Event(started, source, NORMAL, f"{node['type']}Started", node.get("templateName", "")))
        if finished := _time(node.get("finishedAt")):
            bad = node.get("phase") in ("Failed", "Error")
            kind = WARNING if bad else NORMAL
            found.append(Event(finished, source, kind, f"{node['type']}{node['phase']}", node.get("message", "")))
    return sorted(found, key=lambda event: event.time)


def _time(text: str | None) -> float | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None
