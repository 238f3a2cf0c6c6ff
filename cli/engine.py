"""`ffdl engine`."""

from __future__ import annotations

import click

from .settings import Settings, Verb, tell


@click.command("engine", cls=Verb, examples=("ffdl engine",))
@click.pass_obj
def command(settings: Settings) -> int:
    """Run the local engine as a service: it takes jobs over whose runner has died, until Ctrl-C.

    Jobs run without it too: whichever command comes next takes over. After Ctrl-C they go on.
    """
    engine = settings.engine()
    serve = getattr(engine, "serve", None)
    if serve is None:
        raise click.ClickException(f"the {engine.name} engine runs as a service already")
    tell("the local engine watches over its jobs; Ctrl-C ends the watching, not the jobs")
    for taken in serve():
        tell(f"took over {', '.join(taken)}")
    return 0
