"""`ffdl wait`."""

from __future__ import annotations

import click

from .settings import Settings, Verb, job_argument, seconds


@click.command("wait", cls=Verb, examples=("ffdl wait @latest --timeout 1h && ffdl download @latest",))
@job_argument
@click.option("--timeout", type=seconds, metavar="D", help="Give up after this long (10m) with exit code 4.")
@click.pass_obj
def command(settings: Settings, job_id: str, timeout: float | None) -> int:
    """Wait until a job has ended or is halted.

    Exit code 0: COMPLETED; 1: FAILED; 3: HALTED.
    """
    from .following import stay, wait_and_tell

    engine, found = settings.engine(), settings.find(job_id)
    return stay(found, lambda: wait_and_tell(engine, found, timeout))
