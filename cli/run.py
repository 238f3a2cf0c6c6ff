"""`ffdl run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .settings import FINE, HALTED_CODE, INTERRUPTED, JOB_FAILED, Settings, Verb, output_option, tell

if TYPE_CHECKING:
    from ..engines.local.engine import LocalEngine
    from ..workflows.submission import Submission

PARAMETER = "NAME=VALUE"


@click.command(
    "run",
    cls=Verb,
    examples=(
        "ffdl run workflow.yaml",
        "ffdl run workflow.yaml -p message=hello --logs",
        "ffdl run workflow.yaml --templates templates/ -o json | jq .status.phase",
        "ffdl run nightly-cron.yaml --detach",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("-p", "--param", "parameters", multiple=True, metavar=PARAMETER, help="A parameter (may be repeated).")
@click.option(
    "--param-file", type=click.Path(path_type=Path), metavar="FILE", help="Parameters as a map, in YAML or JSON."
)
@click.option("--entrypoint", metavar="TEMPLATE", help="Begin there, not where the Workflow says.")
@click.option("--name", metavar="NAME", help="The Workflow's name, instead of its own.")
@click.option("--replace", is_flag=True, help="Remove the one of that name, which has ended, before.")
@click.option(
    "--templates", multiple=True, type=click.Path(path_type=Path), metavar="FOLDER",
    help="WorkflowTemplates, ConfigMaps and Secrets that it may use (may be repeated).",
)  # fmt: skip
@click.option("--logs", is_flag=True, help="Print what its pods write.")
@click.option("--detach", is_flag=True, help="Print the Workflow's name and return; it goes on.")
@click.option("--python", metavar="FILE", help="The Python of its steps. [default: the active environment's]")
@output_option("tree", "json", "yaml", "name")
@click.pass_obj
def command(
    settings: Settings,
    files: tuple[Path, ...],
    parameters: tuple[str, ...],
    param_file: Path | None,
    entrypoint: str | None,
    name: str | None,
    replace: bool,
    templates: tuple[Path, ...],
    logs: bool,
    detach: bool,
    python: str | None,
    output: str,
) -> int:
    """Execute an Argo Workflow on this machine, without a cluster.

    The files hold one Workflow (or a CronWorkflow or WorkflowTemplate, whose spec is run), and beside it the
    WorkflowTemplates, ConfigMaps and Secrets that it uses. `-` reads standard input.

    Exit code 0: Succeeded; 1: Failed or Error; 2: it can't run here; 3: halted.
    """
    from .workflow_files import read_objects, shown

    if detach and (logs or output not in ("tree", "name")):
        raise click.UsageError("--detach returns at once: leave --logs and -o out")
    if settings.value("engine") == "argo":
        raise click.ClickException("`ffdl run` executes on this machine; a cluster takes it with `argo submit`")
    given = _parameters(parameters, param_file)
    from ..workflows.submission import submission

    made = submission(read_objects(files), read_objects(templates), ", ".join(map(shown, files)))
    engine = _local(settings, python)
    workflow = _prepared(made, given, entrypoint, name)
    job_id = engine.submit_workflow(
        workflow, config_maps=made.config_maps, secrets=made.secrets, templates=made.library, replace=replace
    )
    if detach:
        click.echo(job_id)
        return FINE
    return _stay(engine, job_id, logs, output)


def _local(settings: Settings, python: str | None) -> LocalEngine:
    from ..engines.local.engine import LocalEngine

    engine = settings.engine(python)
    assert isinstance(engine, LocalEngine)
    return engine


def _parameters(pairs: tuple[str, ...], file: Path | None) -> dict[str, str]:
    """Those of the file, then those of the command line."""
    from .workflow_files import read_parameters

    given = {} if file is None else read_parameters(file)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise click.UsageError(f"-p {pair}: write it as {PARAMETER}, like -p message=hello")
        given[name] = value
    return given


def _prepared(made: Submission, given: dict[str, str], entrypoint: str | None, name: str | None) -> dict[str, Any]:
    """The Workflow to submit, once it has been told what of it has no effect."""
    from ..engines.lint import notes
    from ..workflows.submission import with_parameters

    try:
        workflow = with_parameters(made.workflow, given, entrypoint)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if name is not None:
        metadata = {key: value for key, value in (workflow.get("metadata") or {}).items() if key != "generateName"}
        workflow["metadata"] = {**metadata, "name": name}
    for note in notes(made, workflow):
        tell(f"Note: {note}")
    return workflow


def _stay(engine: LocalEngine, job_id: str, logs: bool, output: str) -> int:
    from .output import write
    from .watching import Watch, tell_failures

    stream = sys.stdout if output == "tree" and not logs else sys.stderr
    try:
        workflow = Watch(engine, job_id, stream, logs).to_end()
    except KeyboardInterrupt:
        tell(
            f"\n{job_id} goes on without you: `ffdl wait {job_id}` waits for its end, `ffdl logs -f {job_id}` follows "
            f"it, `ffdl stop {job_id}` ends it"
        )
        return INTERRUPTED
    if output == "name":
        click.echo(job_id)
    elif output != "tree":
        write(workflow, output)
    status = engine.status(job_id)
    if status.state == "COMPLETED":
        tell(f"{job_id} Succeeded")
        return FINE
    if status.state != "FAILED":
        tell(f"{job_id} is halted; `ffdl resume {job_id}` lets it go on")
        return HALTED_CODE
    if not logs:
        tell_failures(engine, workflow)
    tell(f"{job_id} {workflow['status']['phase']}: {status.reason}")
    return JOB_FAILED
