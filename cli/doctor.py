"""`ffdl doctor`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from . import text
from .output import write
from .settings import ENGINES, Settings, Verb, on_terminal, output_option, seconds, tell

if TYPE_CHECKING:
    from ..engines.finding import Finding

UNAVAILABLE = 4
COLOURS = {"ok": "green", "problem": "red", "note": "yellow", "unseen": "yellow"}


@click.command(
    "doctor", cls=Verb, examples=("ffdl doctor", "ffdl --engine argo -n ffdl doctor", "ffdl doctor --quick -o json")
)
@click.option("--quick", is_flag=True, help="Only look: run no trial on the cluster.")
@click.option("--timeout", type=seconds, default="3m", show_default=True, help="How long the trial may take.")
@click.option("--controller", default="argo", show_default=True, metavar="NAME", help="The namespace of Argo itself.")
@click.option(
    "--print",
    "printed",
    type=click.Choice(("tenant", "controller", "controller-3.7")),
    help="Check nothing: print what a cluster's administrator applies.",
)
@output_option("table", "json", "yaml")
@click.pass_obj
def command(settings: Settings, quick: bool, timeout: float, controller: str, printed: str | None, output: str) -> int:
    """Check that jobs can run here, and say what to do where they can't.

    On a cluster it compares what there is with the argo-config/ of this ffdl, and runs a Workflow of two small pods.
    Exit code 4 if there is a problem.
    """
    if printed is not None:
        from ..engines.argo import packaged

        namespace = (settings.value("namespace") or "ffdl") if printed == packaged.TENANT else controller
        click.echo(packaged.to_yaml(printed, namespace), nl=False)
        return 0
    found: list[Finding] = []
    for finding in _findings(settings, quick, timeout, controller):
        found.append(finding)
        if output == "table":
            told = any(finding.remedy == other.remedy for other in found[:-1])
            click.echo("\n".join(lines(finding, told)), color=text.coloured())
            sys.stdout.flush()
    if output != "table":
        write([dataclasses.asdict(finding) for finding in found], output)
    problems = sum(finding.state == "problem" for finding in found)
    if problems:
        tell(f"{text.plural(problems, 'problem')} found")
    return UNAVAILABLE if problems else 0


def _findings(settings: Settings, quick: bool, timeout: float, controller: str) -> Iterator[Finding]:
    yield from _catalogue(settings)
    name = settings.value("engine") or "local"
    if name not in ENGINES:
        raise click.ClickException(f"no engine is called {name!r}; there are {' and '.join(ENGINES)}")
    if name == "local":
        from ..engines.client import active_python
        from ..engines.local import doctor as local

        yield from local.examine(None, active_python())
        return
    from ..engines.argo import doctor
    from ..engines.argo.access import Api
    from ..engines.argo.connection import connect

    api = Api(connect(settings.value("namespace"), settings.value("context"), settings.value("kubeconfig")))
    if not quick and on_terminal(sys.stderr):
        tell("Note: the trial at the end takes some seconds; --quick leaves it out")
    yield from doctor.examine(api, controller, quick, timeout)


def _catalogue(settings: Settings) -> Iterator[Finding]:
    """The site's file of frameworks, if there is one: it is read on this machine, whatever the engine."""
    from ..engines.base import EngineError
    from ..engines.finding import OK, PROBLEM, Finding
    from ..workflows.errors import ManifestError

    if not settings.value("catalogue"):
        return
    try:
        entries = settings.catalogue().entries
    except EngineError as error:
        yield Finding("catalogue", PROBLEM, str(error))
    except ManifestError as error:
        yield from (Finding("catalogue", PROBLEM, str(problem)) for problem in error.problems)
    else:
        own = [name for name, entry in entries.items() if entry.file]
        yield Finding("catalogue", OK, f"{settings.value('catalogue')} adds or changes {', '.join(own) or 'nothing'}")


def lines(finding: Finding, told: bool = False) -> list[str]:
    """One line, and what to do below it, unless that has been told."""
    mark = click.style(f"{finding.state:<7}", fg=COLOURS[finding.state])
    found = [f"{mark}  {finding.topic:<11}  {text.printable(finding.words)}"]
    return found + [f"{'':22}{line}" for line in finding.remedy.splitlines() if not told]
