"""`ffdl train`."""

from __future__ import annotations

from pathlib import Path

import click

from .settings import Settings, Verb


@click.command(
    "train",
    cls=Verb,
    examples=(
        "ffdl train manifest.yml",
        "ffdl train manifest.yml code/ --follow",
        "ffdl train manifest.yml model.zip --set learners=4 --name four --wait",
        "ffdl train manifest.yml --dry-run",
    ),
)
@click.argument("manifest", type=click.Path(path_type=Path))
@click.argument("code", required=False, type=click.Path(path_type=Path))
@click.option("--wait", is_flag=True, help="Return when the job has ended: exit code 0, 1 (failed) or 3 (halted).")
@click.option("-f", "--follow", is_flag=True, help="Print what the learners write, and wait.")
@click.option("--dry-run", is_flag=True, help="Print the Argo Workflow that would run; submit nothing.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key: cpus=2, framework.version=2.1."
)
@click.option("--name", metavar="NAME", help="The job's name, instead of the manifest's.")
@click.option("--python", metavar="FILE", help="The learners' Python. [default: the active environment's]")
@click.pass_obj
def command(
    settings: Settings,
    manifest: Path,
    code: Path | None,
    wait: bool,
    follow: bool,
    dry_run: bool,
    overrides: tuple[str, ...],
    name: str | None,
    python: str | None,
) -> int:
    """Submit a job: a manifest and its code, a folder or a zip (default: the manifest's folder).

    A file .ffdlignore in the folder, written like a .gitignore, names what to leave out. Prints `Model ID: training-…`.
    """
    from .submit import submit

    return submit(
        settings,
        manifest,
        code,
        wait=wait,
        follow=follow,
        dry_run=dry_run,
        overrides=overrides,
        name=name,
        python=python,
    )
