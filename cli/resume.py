"""`ffdl resume`."""

from __future__ import annotations

import click

from .settings import Settings, Verb, jobs_argument, tell


@click.command("resume", cls=Verb, examples=("ffdl resume @latest",))
@jobs_argument
@click.pass_obj
def command(settings: Settings, job_ids: tuple[str, ...]) -> None:
    """Let halted jobs go on from their last committed checkpoint."""
    for job_id in [settings.find(text) for text in job_ids]:
        settings.engine().resume(job_id)
        tell(f"{job_id} goes on; `ffdl logs -f {job_id}` follows it")
