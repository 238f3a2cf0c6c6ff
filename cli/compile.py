"""`ffdl compile`."""

from __future__ import annotations

from pathlib import Path

import click

from .settings import Settings, Verb


@click.command(
    "compile",
    cls=Verb,
    engine=False,
    examples=("ffdl compile manifest.yml", "ffdl compile manifest.yml -o workflow.yml"),
)
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write there, not to stdout.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key: cpus=2, framework.version=2.1."
)
@click.pass_obj
def command(settings: Settings, manifest: Path, output: Path | None, overrides: tuple[str, ...]) -> None:
    """Print the Argo Workflow that a manifest becomes, as YAML. The same manifest gives the same bytes.

    The Workflow reads a ConfigMap and a Secret of its own name, which `ffdl train` makes beside it.
    """
    from ..workflows.compile import compile_job
    from .submit import read_job, tell_notes

    job, text = read_job(settings, manifest, overrides)
    tell_notes(job)
    yaml = compile_job(job, manifest_text=text).to_yaml()
    if output is None:
        click.echo(yaml, nl=False)
    else:
        output.write_text(yaml, "utf-8")
