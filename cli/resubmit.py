"""`ffdl resubmit`."""

from __future__ import annotations

import click

from .settings import Settings, Verb, job_argument


@click.command(
    "resubmit", cls=Verb, examples=("ffdl resubmit @latest --follow", "ffdl resubmit digits --from-checkpoint")
)
@job_argument
@click.option("--from-checkpoint", is_flag=True, help="Begin with the last checkpoint that the job has stored.")
@click.option("--wait", is_flag=True, help="Return when the job has ended: exit code 0, 1 (failed) or 3 (halted).")
@click.option("-f", "--follow", is_flag=True, help="Print what the learners write, and wait.")
@click.pass_obj
def command(settings: Settings, job_id: str, from_checkpoint: bool, wait: bool, follow: bool) -> int:
    """Run a job again as a new one: same Workflow, same code. Prints `Model ID: training-…`.

    It begins at the beginning, or with --from-checkpoint at the last checkpoint that the job has stored, be it halted,
    failed or still at work.
    """
    from ..engines.client import new_id_like
    from .submit import after_submission

    engine, found = settings.engine(), settings.find(job_id)
    new_id = new_id_like(engine.status(found))
    engine.resubmit(found, new_id, from_checkpoint)
    return after_submission(engine, new_id, wait, follow)
