"""`ffdl download`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .settings import Settings, Verb, job_argument, on_terminal, tell


@click.command(
    "download", cls=Verb, examples=("ffdl download @latest -d results/", "ffdl download training-abc --trainedmodel")
)
@job_argument
@click.option("--definition", "what", flag_value="definition", help="The code and manifest as submitted.")
@click.option("--trainedmodel", "what", flag_value="trainedmodel", help="The model, without logs.")
@click.option("--checkpoint", "what", flag_value="checkpoint", help="The last committed checkpoint.")
@click.option("-d", "--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Where to. [default: ./ID]")
@click.pass_obj
def command(settings: Settings, job_id: str, what: str | None, folder: Path | None) -> None:
    """Fetch what a job stored: everything, or one part of it. Prints where it lies.

    Of a Workflow that is no training job, the output artifacts of its nodes.
    """
    found = settings.find(job_id)
    engine = settings.engine()
    status = engine.status(found)
    if not status.terminal:
        tell(f"Note: {found} is {status.state}; this is what it has stored so far")
    place = folder or Path(found)
    if place.exists() and not place.is_dir():
        raise click.ClickException(f"{place} is no folder; name one, or a new one, with -d")
    if on_terminal(sys.stderr) and hasattr(engine, "on_progress"):
        engine.on_progress = _show
    click.echo(engine.download(found, what or "results", place))


def _show(done: int, total: int) -> None:
    """One line on a terminal that is written over."""
    end = "\n" if done >= total else ""
    click.echo(f"\r\x1b[2K{done / 1e6:.1f} of {total / 1e6:.1f} MB{end}", nl=False, err=True)
