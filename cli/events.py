"""`ffdl events`."""

from __future__ import annotations

from dataclasses import asdict

import click

from . import text
from .output import write, write_lines
from .settings import Settings, Verb, job_argument, output_option, tell

HEADINGS = ("TIME", "SOURCE", "KIND", "REASON", "MESSAGE")


@click.command("events", cls=Verb, examples=("ffdl events @latest",))
@job_argument
@output_option("table", "json", "yaml")
@click.pass_obj
def command(settings: Settings, job_id: str, output: str) -> None:
    """Print what happened to a job and its pods, oldest first."""
    found = settings.find(job_id)
    events = settings.engine().events(found)
    if output != "table":
        write([asdict(event) for event in events], output)
    elif not events:
        tell(f"nothing has happened to {found} yet")
    else:
        rows = [(text.date(e.time), e.source, e.kind, e.reason, text.printable(e.message)) for e in events]
        write_lines(text.table(HEADINGS, rows))
