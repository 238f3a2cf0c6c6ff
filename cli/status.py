"""`ffdl status`."""

from __future__ import annotations

import click

from .settings import Settings, Verb, job_argument, output_option


@click.command("status", cls=Verb, examples=("ffdl status @latest", "ffdl status training-abc -o json"))
@job_argument
@output_option("name", "json", "yaml")
@click.pass_obj
def command(settings: Settings, job_id: str, output: str) -> None:
    """Print a job's state, one word.

    NOT_STARTED, QUEUED, PENDING, DOWNLOADING, PROCESSING, STORING, COMPLETED, FAILED or HALTED.
    """
    status = settings.engine().status(settings.find(job_id))
    if output == "name":
        click.echo(status.state)
        return
    from .output import write

    write(status.to_dict(), output)
