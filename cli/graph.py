"""`ffdl graph`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import text
from .settings import Settings, Verb, complete_files_and_ids, on_terminal, output_option

if TYPE_CHECKING:
    from ..engines.graph import Box

HEADINGS = ("STEP", "TEMPLATE", "AFTER")


@click.command(
    "graph",
    cls=Verb,
    examples=(
        "ffdl graph workflow.yaml",
        "ffdl graph workflow.yaml -o svg > workflow.svg",
        "ffdl graph @latest",
        "ffdl graph manifest.yml -o dot | dot -Tpdf > job.pdf",
    ),
)
@click.argument("what", metavar="FILE|ID", shell_complete=complete_files_and_ids)
@click.option(
    "--templates", multiple=True, type=click.Path(path_type=Path), metavar="FOLDER",
    help="WorkflowTemplates that it refers to (may be repeated).",
)  # fmt: skip
@output_option("text", "svg", "dot")
@click.pass_obj
def command(settings: Settings, what: str, templates: tuple[Path, ...], output: str) -> None:
    """Draw what a Workflow consists of and in which order that runs; of one that has begun, with its states.

    A file holds a Workflow, a WorkflowTemplate, a CronWorkflow or a manifest. SVG and DOT go to standard output.
    """
    from ..engines.graph import drawing

    path = Path(what)
    if what == "-" or path.suffix in (".yaml", ".yml", ".json") or path.is_file():
        workflow = _of_file(settings, path, templates)
    else:
        workflow = settings.engine().workflow(settings.find(what))
    root = drawing(workflow)
    metadata = workflow.get("metadata") or {}
    name = str(metadata.get("name") or str(metadata.get("generateName", what)).rstrip("-"))
    if output == "text":
        click.echo("\n".join(_lines(root)), color=text.coloured())
    elif output == "svg":
        from ..engines.graph.svg import svg

        click.echo(svg(root, name), nl=False)
    else:
        from ..engines.graph.dot import dot

        click.echo(dot(root, name), nl=False)


def _of_file(settings: Settings, file: Path, folders: tuple[Path, ...]) -> dict[str, Any]:
    """The Workflow in a file, what it takes from others beside it. Raises ManifestError."""
    from ..workflows.errors import ManifestError
    from ..workflows.objects import holds_objects, read
    from ..workflows.submission import submission
    from ..workflows.template_refs import Library
    from .workflow_files import contents, read_objects, shown

    data = contents(file)
    if not holds_objects(data):
        from ..workflows.compile import compile_job
        from .submit import read_job

        job, _ = read_job(settings, file)
        return compile_job(job).workflow
    from ..engines.lint import of_workflow

    made = submission(read(data, shown(file)), read_objects(folders), shown(file))
    library = Library(made.library)
    if malformed := [each.problem for each in of_workflow(made.workflow, made.source, library) if each.malformed]:
        raise ManifestError(malformed)
    workflow = library.joined(made.workflow)
    return {**workflow, "status": {"storedTemplates": library.stored(workflow)}}


def _lines(root: Box) -> list[str]:
    from ..engines.graph.text import lines
    from .tree import columns

    found = lines(root)
    rows = [
        (f"{line.before}{line.mark} {line.title}", line.subtitle, f"← {line.after}" if line.after else "")
        for line in found
    ]
    printable = [[text.printable(cell) for cell in row] for row in rows]
    width = text.terminal_width() if on_terminal(sys.stdout) else None
    return columns(HEADINGS, printable, [(line.mark, line.phase) for line in found], width)
