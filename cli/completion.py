"""`ffdl completion`."""

from __future__ import annotations

import click

from .settings import Verb

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    cls=Verb,
    engine=False,
    examples=('eval "$(ffdl completion bash)"', "ffdl completion fish > ~/.config/fish/completions/ffdl.fish"),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that makes a shell complete verbs, options and the ids of jobs."""
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(ctx.find_root().command, {}, "ffdl", "_FFDL_COMPLETE").source())
