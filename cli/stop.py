"""`ffdl stop`."""

from __future__ import annotations

import click

from .settings import Settings, Verb, jobs_argument, tell


@click.command("stop", cls=Verb, examples=("ffdl stop @latest",))
@jobs_argument
@click.pass_obj
def command(settings: Settings, job_ids: tuple[str, ...]) -> None:
    """End jobs for good. Results and logs so far are stored; the job becomes FAILED.

    To let a job go on later, halt it instead.
    """
    for job_id in [settings.find(text, "unfinished") for text in job_ids]:
        settings.engine().stop(job_id)
        tell(f"{job_id} is being stopped; `ffdl wait {job_id}` returns when it has ended")
