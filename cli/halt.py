"""`ffdl halt`."""

from __future__ import annotations

import click

from .settings import FINE, INTERRUPTED, Settings, Verb, jobs_argument, seconds, tell


@click.command("halt", cls=Verb, examples=("ffdl halt @latest", "ffdl halt --no-wait training-abc training-xyz"))
@jobs_argument
@click.option("--no-wait", is_flag=True, help="Return at once, not when the CPUs and GPUs are free.")
@click.option("--timeout", type=seconds, metavar="D", help="Wait no longer than this (10m).")
@click.pass_obj
def command(settings: Settings, job_ids: tuple[str, ...], no_wait: bool, timeout: float | None) -> int:
    """Halt jobs: each learner commits a checkpoint at its next step and ends.

    The job keeps its id and its place; `ffdl resume` lets it go on from there.
    """
    from .following import halted

    engine = settings.engine()
    found = [settings.find(text, "unfinished") for text in job_ids]
    for job_id in found:
        engine.halt(job_id, wait=False)
    for job_id in found:
        if no_wait:
            tell(f"{job_id} is asked to halt")
            continue
        try:
            engine.until_halted(job_id, timeout)
        except KeyboardInterrupt:
            tell(f"\n{job_id} goes on halting without you; `ffdl status {job_id}` tells when it is HALTED")
            return INTERRUPTED
        status = engine.status(job_id)
        if status.state == "HALTED":
            tell(halted(status))
        else:
            tell(f"{job_id} was faster: it is {status.state}")
    return FINE
