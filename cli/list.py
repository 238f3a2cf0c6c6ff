"""`ffdl list`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from . import text
from .output import write, write_lines
from .screen import Screen, in_batches
from .settings import Settings, Verb, on_terminal, output_option, tell

if TYPE_CHECKING:
    from ..engines.base import Engine
    from ..engines.status import JobStatus

RECENT = 86400.0  # seconds for which a finished job is listed without -a
HEADINGS = ("NAME", "ID", "FRAMEWORK", "LEARNERS", "GPUS", "STATE", "PROGRESS", "ETA", "ATTEMPTS", "AGE")
RIGHT = ("LEARNERS", "GPUS", "PROGRESS", "ETA", "ATTEMPTS", "AGE")
USUAL = {"GPUS": ("0", ""), "LEARNERS": ("1", ""), "ATTEMPTS": ("1", ""), "ETA": ("",), "PROGRESS": ("",)}
STATES = (
    "NOT_STARTED", "QUEUED", "PENDING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED", "FAILED", "HALTED"
)  # fmt: skip


@click.command("list", cls=Verb, examples=("ffdl list", "ffdl list -w", "ffdl list -a --state FAILED -o json"))
@click.option("-a", "--all", "every", is_flag=True, help="Also jobs that ended more than a day ago.")
@click.option("-w", "--watch", is_flag=True, help="Keep the table up to date until Ctrl-C.")
@click.option(
    "--state", "states", multiple=True, metavar="S", type=click.Choice(STATES, case_sensitive=False),
    help="Only jobs in this state, however old (may be repeated).",
)  # fmt: skip
@output_option("table", "json", "yaml", "name")
@click.pass_obj
def command(settings: Settings, every: bool, watch: bool, states: tuple[str, ...], output: str) -> int | None:
    """List jobs, newest first, and say why a job waits or failed.

    A state is NOT_STARTED, QUEUED, PENDING, DOWNLOADING, PROCESSING, STORING, COMPLETED, FAILED or HALTED.
    """
    if watch and output != "table":
        raise click.UsageError("-w draws a table: leave -o out, or ask again when you want to know")
    engine = settings.engine()
    if watch:
        return _watch(engine, every, states)
    jobs, hidden = _chosen(engine.list(), every, states, time.time())
    if output == "table":
        if jobs:
            write_lines(listing(jobs, time.time(), text.terminal_width() if on_terminal(sys.stdout) else None))
        _say_hidden(len(jobs), hidden, states)
    elif output == "name":
        click.echo("".join(f"{job.id}\n" for job in jobs), nl=False)
    else:
        write([job.to_dict() for job in jobs], output)
    return None


def _chosen(jobs: Sequence[JobStatus], every: bool, states: tuple[str, ...], now: float) -> tuple[list[JobStatus], int]:
    """The jobs to show, and how many were left out for their age."""
    if states:
        return [job for job in jobs if job.state in states], 0
    shown = [job for job in jobs if every or not job.terminal or now - (job.finished or now) < RECENT]
    return shown, len(jobs) - len(shown)


def _say_hidden(shown: int, hidden: int, states: tuple[str, ...]) -> None:
    if hidden:
        tell(f"{text.plural(hidden, 'job')} that ended more than a day ago not shown; -a shows all")
    elif not shown and states:
        tell(f"no job is {' or '.join(states)}; `ffdl list -a` shows all")
    elif not shown:
        tell("no jobs; `ffdl init NAME` makes one to try")


def listing(jobs: Sequence[JobStatus], now: float, width: int | None) -> list[str]:
    """The table's lines. On a terminal of `width` columns the usual and the least needed are left out."""
    rows = [_row(job, now) for job in jobs]
    if width is None:
        return text.table(
            (*HEADINGS, "REASON"),
            [(*row, text.printable(job.reason)) for row, job in zip(rows, jobs, strict=True)],
            RIGHT,
        )
    headings, rows = _fitted(rows, width)
    lines = text.table(headings, rows, RIGHT)
    whole = [lines[0]]
    for line, job in zip(lines[1:], jobs, strict=True):
        whole.append(line)
        if job.reason:
            whole.append(f"  └ {text.printable(job.reason)}")
    return whole


def _row(job: JobStatus, now: float) -> tuple[str, ...]:
    training = job.kind == "TrainingJob"
    return (
        text.printable(job.name),
        job.id,
        text.printable(f"{job.framework} {job.version}".strip() if training else job.kind),
        str(job.learners) if training else "",
        str(job.gpus) if training else "",
        job.state,
        text.percent(job.progress),
        text.short_duration(job.eta),
        str(job.attempts) if training else "",
        text.short_duration(None if job.submitted is None else now - job.submitted),
    )


def _fitted(rows: list[tuple[str, ...]], width: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    headings = list(HEADINGS)
    columns = {heading: [row[i] for row in rows] for i, heading in enumerate(HEADINGS)}

    def excess() -> int:
        widths = [max(text.width_of(cell) for cell in (heading, *columns[heading])) for heading in headings]
        return sum(widths) + 2 * (len(headings) - 1) - width

    def shorten(heading: str, at_least: int) -> None:
        widest = max(text.width_of(cell) for cell in columns[heading])
        most = max(at_least, widest - excess())
        columns[heading] = [text.shortened(cell, most) for cell in columns[heading]]

    for heading, usual in USUAL.items():
        if excess() > 0 and all(cell in usual for cell in columns[heading]):
            headings.remove(heading)
    for heading in ("FRAMEWORK", "NAME"):
        if excess() > 0:
            shorten(heading, 10)
    for heading in ("FRAMEWORK", "GPUS", "LEARNERS", "ATTEMPTS", "AGE", "ETA", "PROGRESS"):
        if excess() > 0 and heading in headings:
            headings.remove(heading)
    return tuple(headings), list(zip(*(columns[heading] for heading in headings), strict=True))


def _watch(engine: Engine, every: bool, states: tuple[str, ...]) -> int:
    """On a terminal the table, drawn anew at each change; elsewhere a line for each change."""
    known: dict[str, JobStatus] = {}
    try:
        if not on_terminal(sys.stdout):
            for status in engine.watch():
                if not states or status.state in states:
                    words = (text.date(time.time()), status.id, status.state, text.printable(status.reason))
                    click.echo("  ".join(words).rstrip())
                    sys.stdout.flush()
            return 0
        screen = Screen(sys.stdout)
        for changed in in_batches(engine.watch):
            known.update({status.id: status for status in changed})
            now = time.time()
            newest_first = sorted(known.values(), key=lambda job: job.submitted or 0.0, reverse=True)
            jobs, _ = _chosen(newest_first, every, states, now)
            lines = listing(jobs, now, text.terminal_width()) if jobs else ["no jobs yet"]
            screen.draw(lines)
    except KeyboardInterrupt:
        tell("")
    return 0
