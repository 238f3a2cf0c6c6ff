"""`ffdl lint`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import text
from .output import write
from .settings import Settings, Verb, output_option, tell

if TYPE_CHECKING:
    from ..engines.lint import Finding


@click.command(
    "lint",
    cls=Verb,
    engine=False,
    examples=(
        "ffdl lint manifest.yml",
        "ffdl lint jobs/*/manifest.yml",
        "ffdl lint workflow.yaml templates/ -o json",
        "ffdl lint --cluster workflow.yaml",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--cluster", is_flag=True, help="For Argo: what only `ffdl run` does not do is no problem.")
@output_option("table", "json", "yaml")
@click.pass_obj
def command(settings: Settings, files: tuple[Path, ...], cluster: bool, output: str) -> int:
    """Say all that is wrong with manifests and with Argo Workflows.

    A line for each: FILE:LINE: what is wrong; what to write instead. Argo refuses a Workflow (WorkflowTemplate,
    CronWorkflow) that is `invalid`; `ffdl run` one with what is `unsupported`, and makes nothing of what has
    `no-effect`, which is a note; so is a `warning` about a manifest. A folder stands for the YAML in it.

    Exit code 2 if there is a problem.
    """
    from ..engines.lint import NO_EFFECT, UNRESOLVED, UNSUPPORTED, WARNING

    not_meant = (NO_EFFECT, UNRESOLVED, UNSUPPORTED) if cluster else ()
    found = [finding for finding in dict.fromkeys(_findings(settings, files)) if finding.kind not in not_meant]
    wrong = [finding for finding in found if finding.kind not in (NO_EFFECT, WARNING)]
    if output != "table":
        plain = [(finding.problem, finding.kind) for finding in found]
        write([{"file": p.file, "line": p.line, "message": p.message, "class": kind} for p, kind in plain], output)
    else:
        for finding in found:
            if finding.kind in (NO_EFFECT, WARNING):
                tell(f"{'Note' if finding.kind == NO_EFFECT else 'Warning'}: {finding.problem}")
            else:
                click.echo(str(finding.problem))
        what = str(files[0]) if len(files) == 1 else text.plural(len(files), "file")
        tell(f"{what}: {text.plural(len(wrong), 'problem') if wrong else 'nothing is wrong'}")
    return 2 if wrong else 0


def _findings(settings: Settings, places: tuple[Path, ...]) -> Iterator[Finding]:
    """Of manifests and of what can't be read, file by file; then of Workflows, which may use each other."""
    from ..engines.lint import INVALID, WARNING, Finding, findings, unknown
    from ..workflows.errors import ManifestError, Problem
    from ..workflows.objects import Object, holds_objects, read
    from .submit import read_job
    from .workflow_files import contents, files_in, shown

    objects: list[Object] = []
    for file in files_in(places):
        data = contents(file)
        try:
            if holds_objects(data):
                found = read(data, shown(file))
                objects += found
                yield from unknown(found, named=file in places)
            elif file in places or file.stem == "manifest":
                job, _ = read_job(settings, file)
                if job.warning:
                    yield Finding(WARNING, Problem(shown(file), 0, job.warning))
        except ManifestError as error:
            yield from (Finding(INVALID, problem) for problem in error.problems)
    yield from findings(objects)
