"""`ffdl lint`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import text
from .output import write
from .settings import Verb, output_option, tell

if TYPE_CHECKING:
    from ..workflows.errors import Problem


@click.command("lint", cls=Verb, engine=False, examples=("ffdl lint manifest.yml", "ffdl lint jobs/*/manifest.yml"))
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MANIFEST...")
@output_option("table", "json", "yaml")
def command(manifests: tuple[Path, ...], output: str) -> int:
    """Say all that is wrong with manifests, each as FILE:LINE: what is wrong; what to write instead.

    Exit code 2 if there is anything.
    """
    problems = [problem for manifest in manifests for problem in _problems(manifest)]
    if output != "table":
        write([{"file": p.file, "line": p.line, "message": p.message} for p in problems], output)
    else:
        for problem in problems:
            click.echo(str(problem))
        what = str(manifests[0]) if len(manifests) == 1 else text.plural(len(manifests), "manifest")
        tell(f"{what}: {text.plural(len(problems), 'problem') if problems else 'nothing is wrong'}")
    return 2 if problems else 0


def _problems(manifest: Path) -> list[Problem]:
    from ..workflows.errors import ManifestError
    from .submit import read_job

    try:
        read_job(manifest)
    except ManifestError as error:
        return error.problems
    return []
