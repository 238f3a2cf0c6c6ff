"""Staying with a job: its log lines or its progress, until it has ended or is halted; and the exit code for that."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

import click

from . import text
from .settings import FINE, HALTED_CODE, INTERRUPTED, JOB_FAILED, on_terminal, tell

if TYPE_CHECKING:
    from ..engines.base import Engine, LogLine
    from ..engines.status import JobStatus

PREFIX_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")


def stay(job_id: str, follow: Callable[[], int]) -> int:
    """`follow()`'s exit code; Ctrl-C ends the following, not the job, and says so."""
    try:
        return follow()
    except KeyboardInterrupt:
        tell(
            f"\n{job_id} goes on without you: `ffdl logs -f {job_id}` follows it again, "
            f"`ffdl halt {job_id}` halts it, `ffdl stop {job_id}` ends it"
        )
        return INTERRUPTED


def follow_logs(engine: Engine, job_id: str) -> int:
    """Prints the learners' lines as they come, then says how the job ended."""
    until_begun(engine, job_id)
    print_lines(engine.logs(job_id, follow=True), prefixed=several(engine.status(job_id)), flush=True)
    return wait_and_tell(engine, job_id)


def until_begun(engine: Engine, job_id: str) -> None:
    """Says on stderr what the job waits for, as long as it has not begun."""
    from ..engines.status import NOT_STARTED, PENDING, QUEUED

    said = ""
    for status in engine.watch(job_id):
        if status.state not in (NOT_STARTED, QUEUED, PENDING):
            return
        if status.reason and status.reason != said:
            said = status.reason
            _tell_state(status)


def several(status: JobStatus) -> bool:
    """Whether lines of its log may be of more than one learner, or of any pod of a Workflow."""
    return status.learners != 1


def print_lines(lines: Iterable[LogLine], prefixed: bool, flush: bool, of: str | None = None) -> int:
    """Prints lines as they come, and returns how many; `of` is whose need no prefix: it was asked for by name."""
    printer = LinePrinter(prefixed, of=of)
    if not flush:
        return printer.lines(lines, flush=False)
    return sum(printer.lines([line]) for line in lines)


class LinePrinter:
    """Writes what pods wrote; `prefixed`: whose each line is comes before it, in a colour of its own."""

    def __init__(self, prefixed: bool, stream: TextIO | None = None, indent: str = "", of: str | None = None) -> None:
        self._stream, self._prefixed, self._indent, self._of = stream or sys.stdout, prefixed, indent, of
        self._coloured = on_terminal(self._stream) and text.coloured() is None
        self._prefixes: dict[str, str] = {}

    def lines(self, lines: Iterable[LogLine], flush: bool = True) -> int:
        """How many there were."""
        write, count = self._stream.write, 0
        for line in lines:
            count += 1
            if not self._prefixed or line.source == self._of:
                write(f"{self._indent}{line.text}\n")
                continue
            if line.source not in self._prefixes:
                colour = PREFIX_COLOURS[len(self._prefixes) % len(PREFIX_COLOURS)]
                source = text.printable(line.source)
                self._prefixes[line.source] = click.style(source, fg=colour) if self._coloured else source
            write(f"{self._prefixes[line.source]} | {line.text}\n")
        if flush:
            self._stream.flush()
        return count


def wait_and_tell(engine: Engine, job_id: str, timeout: float | None = None) -> int:
    """Says each change of state on stderr (on a terminal, progress too) until the job has ended or is halted.

    Returns the exit code; raises EngineError if that takes longer than `timeout` seconds.
    """
    from ..engines.base import EngineError
    from ..engines.status import HALTED

    line = _ProgressLine()
    status, said = None, ("", "")
    deadline = None if timeout is None else time.monotonic() + timeout
    for status in engine.watch(job_id, timeout):
        if status.terminal or status.state == HALTED:
            line.clear()
            return _say_end(status)
        if (status.state, status.reason) != said:
            said = (status.state, status.reason)
            line.clear()
            _tell_state(status)
        line.show(status)
    line.clear()
    state = status.state if status is not None else "gone"
    if deadline is not None and time.monotonic() >= deadline - 0.1:
        raise EngineError(f"{job_id} is still {state} after {text.duration(timeout or 0.0)}")
    raise EngineError(f"{job_id} can't be watched any longer; it was {state}: `ffdl show {job_id}`")


def _tell_state(status: JobStatus) -> None:
    tell(f"{time.strftime('%H:%M:%S')}  {status.state}" + (f": {status.reason}" if status.reason else ""))


def _say_end(status: JobStatus) -> int:
    if status.state == "HALTED":
        tell(halted(status))
        return HALTED_CODE
    took = ""
    if status.finished is not None and status.submitted is not None:
        took = f" after {text.duration(status.finished - status.submitted)}"
    if status.state == "COMPLETED":
        next_one = "show" if status.kind == "Workflow" else "download"
        what = "shows its nodes" if status.kind == "Workflow" else "fetches its results"
        tell(f"{status.id} COMPLETED{took}; `ffdl {next_one} {status.id}` {what}")
        return FINE
    tell(f"{status.id} FAILED{took}" + (f": {status.reason}" if status.reason else ""))
    return JOB_FAILED


def halted(status: JobStatus) -> str:
    """What to say of a job that is HALTED. What a script saves without our library, nobody knows of."""
    job_id = status.id
    begun = any(node.learner and node.started is not None for node in status.nodes)
    if status.checkpoint is not None or not begun:
        return f"{job_id} is HALTED{_at(status)}; `ffdl resume {job_id}` lets it go on"
    unless = "unless its script saves by itself"
    return f"{job_id} is HALTED{_at(status)}, without a checkpoint: {unless}, `ffdl resume {job_id}` begins anew"


def _at(status: JobStatus) -> str:
    return "" if status.step is None else f" at step {status.step}" + (f" of {status.of}" if status.of else "")


class _ProgressLine:
    """One line at the bottom of a terminal that is written over; nothing anywhere else."""

    def __init__(self) -> None:
        self._on = on_terminal(sys.stderr)
        self._shown = False

    def show(self, status: JobStatus) -> None:
        if not self._on or status.progress is None:
            return
        words = [text.percent(status.progress)]
        if status.step is not None:
            words.append(f"step {status.step}" + (f" of {status.of}" if status.of else ""))
        if status.eta is not None:
            words.append(f"{text.duration(status.eta)} to go")
        words += [f"{name} {text.number(value, 4)}" for name, value in status.metrics.items()]
        bar = "█" * int(status.progress * 20)
        line = text.printable(f"{bar:░<20} " + ", ".join(words))
        sys.stderr.write(f"\r\x1b[2K{text.shortened(line, text.terminal_width() - 1)}")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            self._shown = False
