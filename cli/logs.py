"""`ffdl logs`."""

from __future__ import annotations

import time

import click

from .settings import Settings, Verb, job_argument, seconds, tell


@click.command(
    "logs",
    cls=Verb,
    examples=(
        "ffdl logs -f @latest",
        "ffdl logs training-abc --learner 2 --attempt 1 --tail 100",
        "ffdl logs training-abc --step download",
    ),
)
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended or is halted.")
@click.option("--learner", type=click.IntRange(min=1), metavar="N", help="One learner only; the first is 1.")
@click.option("--step", metavar="NAME", help="A step instead: download, checkpoint, store-results, NODE.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="One attempt only; the first is 1.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="The last N lines of each learner.")
@click.option("--since", type=seconds, metavar="D", help="Lines of the last 10m, 1h30m, 2d.")
@click.pass_obj
def command(
    settings: Settings,
    job_id: str,
    follow: bool,
    learner: int | None,
    step: str | None,
    attempt: int | None,
    tail: int | None,
    since: float | None,
) -> int:
    """Print what the learners wrote; with several of them, each line says whose it is.

    Of a Workflow that is no training job, what all its pods wrote. A NODE is named as in `ffdl show`, or by its path
    (`build.compile`), its template, or all items of a loop by the loop's name.

    With -f the exit code is the job's: 0 COMPLETED, 1 FAILED, 3 HALTED.
    """
    from .following import print_lines, several, stay, until_begun, wait_and_tell

    if learner is not None and step is not None:
        raise click.UsageError("--learner and --step exclude each other")
    engine, found = settings.engine(), settings.find(job_id)
    status = engine.status(found)
    learners = status.learners
    if learner is not None and learner > learners:
        raise click.ClickException(f"{found} has no learner {learner}; there are {learners}")

    def read() -> int:
        if follow:
            until_begun(engine, found)
        lines = engine.logs(
            found,
            learner=learner,
            step=step,
            attempt=attempt,
            follow=follow,
            tail=tail,
            since=None if since is None else time.time() - since,
        )
        printed = print_lines(lines, prefixed=several(status) and learner is None, flush=follow, of=step)
        if not printed and (step is not None or attempt is not None):
            steps = ", ".join(node.name for node in status.nodes) or "none yet"
            tell(f"no line is of that step or attempt; steps of {found} are {steps}")
        return wait_and_tell(engine, found) if follow else 0

    return stay(found, read) if follow else read()
