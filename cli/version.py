"""`ffdl version`."""

from __future__ import annotations

import click

from .settings import Verb


@click.command("version", cls=Verb, engine=False, examples=("ffdl version",))
def command() -> None:
    """Print the version of ffdl."""
    from importlib.metadata import version

    click.echo(f"ffdl {version('ffdl')}")
