"""`ffdl resume`."""

from __future__ import annotations

import click

from .settings import Settings, Verb, jobs_argument, tell


@click.command(
    "resume",
    cls=Verb,
    examples=("ffdl resume @latest", "ffdl resume pipeline-x7k2p --node approve --output answer=yes"),
)
@jobs_argument
@click.option("--node", metavar="NODE", help="Only this suspended node of a Workflow.")
@click.option("--output", "outputs", multiple=True, metavar="NAME=VALUE", help="What the node puts out (repeatable).")
@click.option("--fail", metavar="REASON", help="Let the node fail instead.")
@click.pass_obj
def command(
    settings: Settings, job_ids: tuple[str, ...], node: str | None, outputs: tuple[str, ...], fail: str | None
) -> None:
    """Let halted jobs go on from their last committed checkpoint.

    A Workflow that is no training job goes on, too; all nodes of suspend templates that it waits at are let go, or with
    --node, --output or --fail one of them.
    """
    found = [settings.find(text, "unfinished") for text in job_ids]
    engine = settings.engine()
    if node is None and not outputs and fail is None:
        for job_id in found:
            engine.resume(job_id)
            tell(f"{job_id} goes on; `ffdl logs -f {job_id}` follows it")
        return
    if len(found) > 1:
        raise click.UsageError("--node, --output and --fail are for one Workflow at a time")
    values = {}
    for output in outputs:
        name, equals, value = output.partition("=")
        if not (name and equals):
            raise click.UsageError(f"--output {output}: write it as NAME=VALUE")
        values[name] = value
    resume_node = getattr(engine, "resume_node", None)
    if resume_node is None:
        raise click.ClickException("--node, --output and --fail are for this machine's engine; see `argo node set`")
    path = resume_node(found[0], node, values, fail)
    tell(f"{path} of {found[0]} {'fails' if fail is not None else 'goes on'}; `ffdl wait {found[0]}` waits for the end")
