"""`ffdl delete`."""

from __future__ import annotations

import sys

import click

from . import text
from .settings import Settings, Verb, complete_ids, on_terminal, tell


@click.command(
    "delete", cls=Verb, examples=("ffdl delete training-abc", "ffdl delete --results @latest", "ffdl delete --all -y")
)
@click.argument("job_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_ids)
@click.option("--results", is_flag=True, help="Remove what the jobs stored, too.")
@click.option("--all", "every", is_flag=True, help="All jobs.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.pass_obj
def command(settings: Settings, job_ids: tuple[str, ...], results: bool, every: bool, yes: bool) -> None:
    """Remove jobs, running ones too; their stored results stay unless --results."""
    if every == bool(job_ids):
        raise click.UsageError("give the ids of jobs, or --all")
    engine = settings.engine()
    found = list(engine.ids()) if every else list(dict.fromkeys(settings.find(name, "only") for name in job_ids))
    if not found:
        tell("there are no jobs")
        return
    terminal = on_terminal(sys.stdin) and on_terminal(sys.stderr)
    if every and not yes and not terminal:
        raise click.UsageError("--all needs -y where nobody can be asked")
    if not yes and terminal:
        what = found[0] if len(found) == 1 else text.plural(len(found), "job")
        running = sum(not engine.status(job_id).terminal for job_id in found)
        notes = [f"{running} not finished"] if running else []
        notes.append("with their results" if results else "results stay")
        if not click.confirm(f"Delete {what} ({', '.join(notes)})?", err=True):
            tell("nothing was deleted")
            return
    for job_id in found:
        engine.delete(job_id, results=results)
        tell(f"{job_id} is deleted")
