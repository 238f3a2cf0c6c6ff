"""`ffdl metrics`."""

from __future__ import annotations

import sys
from typing import Any

import click

from . import text
from .output import write_record
from .settings import Settings, Verb, job_argument, output_option, tell


@click.command("metrics", cls=Verb, examples=("ffdl metrics @latest", "ffdl metrics -f -o json @latest | jq .values"))
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended or is halted.")
@output_option("table", "json", "yaml")
@click.pass_obj
def command(settings: Settings, job_id: str, follow: bool, output: str) -> int:
    """Print a job's metrics, oldest first: a record a line, also with -o json.

    With -f the exit code is the job's: 0 COMPLETED, 1 FAILED, 3 HALTED.
    """
    from .following import stay, wait_and_tell

    engine, found = settings.engine(), settings.find(job_id)

    def read() -> int:
        number = 0
        for number, record in enumerate(engine.metrics(found, follow=follow), 1):  # noqa: B007
            if output == "table":
                click.echo(line_of(record))
            else:
                write_record(record, output)
            if follow:
                sys.stdout.flush()
        if not number and not follow:
            tell(f"{found} has reported no metrics")
        return wait_and_tell(engine, found) if follow else 0

    return stay(found, read) if follow else read()


def line_of(record: dict[str, Any]) -> str:
    """One record: time, learner, group, then the steps and values it holds."""
    meta = record.get("meta") or {}
    words = [text.date(_seconds(meta.get("time"))), str(meta.get("subid") or ""), str(record.get("grouplabel") or "")]
    words += [
        f"{name}={_value(value)}" for part in ("etimes", "values") for name, value in (record.get(part) or {}).items()
    ]
    return text.printable("  ".join(word for word in words if word))


def _seconds(value: Any) -> float | None:
    """FfDL's times are milliseconds."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number / 1000 if number > 1e11 else number


def _value(value: Any) -> str:
    inner = value.get("value") if isinstance(value, dict) else value
    return f"{inner:.6g}" if isinstance(inner, float) else str(inner)
