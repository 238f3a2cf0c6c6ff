"""From a manifest and a folder of code to a submitted job, and what follows: shared by several verbs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .settings import Settings, tell

if TYPE_CHECKING:
    from ..engines.base import Engine
    from ..workflows.job import TrainingJob
    from ..workflows.manifest import Manifest

MOST_OF_A_MANIFEST = 32 << 20  # bytes read: far more than is accepted


def read_manifest(
    settings: Settings, file: Path, overrides: tuple[str, ...], name: str | None
) -> tuple[Manifest, bytes]:
    """The manifest in `file` with `KEY=VALUE` overrides, and its text. Raises ManifestError, OSError."""
    from ..workflows.manifest import load
    from ..workflows.objects import holds_objects

    for override in overrides:
        if not override.partition("=")[1]:
            raise click.UsageError(f"--set {override}: write it as KEY=VALUE, like --set learners=2")
    values = [*overrides, *([] if name is None else [f"name={name}"])]
    if file.is_dir():
        raise click.ClickException(f"{file} is a folder; name the manifest in it, like {file / 'manifest.yml'}")
    with open(file, "rb") as stream:
        text = stream.read(MOST_OF_A_MANIFEST)
    if holds_objects(text):
        raise click.ClickException(f"{file} is no manifest, but a Kubernetes object; `ffdl run` takes a Workflow")
    return load(text, str(file), values, settings.catalogue()), text


def read_job(settings: Settings, file: Path, overrides: tuple[str, ...] = ()) -> tuple[TrainingJob, bytes]:
    """The job in `file`, and its text, for those who don't run it: what `${NAME}` stands for is left empty."""
    from ..workflows.job import TrainingJob
    from ..workflows.references import references

    manifest, text = read_manifest(settings, file, overrides, None)
    blank = dict.fromkeys(references("\n".join([text.decode(), *overrides])), "")
    return TrainingJob.from_manifest(manifest, environ=blank, file=str(file)), text


def submit(
    settings: Settings,
    manifest: Path,
    code: Path | None,
    *,
    wait: bool,
    follow: bool,
    dry_run: bool,
    overrides: tuple[str, ...],
    name: str | None,
    python: str | None,
) -> int:
    """`ffdl train`. Returns the exit code."""
    engine = settings.engine(python)
    parsed, text = read_manifest(settings, manifest, overrides, name)
    from ..engines.archive import pack_code
    from ..engines.client import decide, new_job_id
    from ..workflows.compile import compile_job

    job = decide(engine, parsed, manifest)
    tell_notes(job)
    source = code if code is not None else manifest.parent
    packed = pack_code(source, text)
    job_id = new_job_id()
    site = getattr(engine, "site", None)
    compiled = compile_job(job, code=packed, job_id=job_id, manifest_text=text, site=site)
    if dry_run:
        click.echo(compiled.to_yaml(), nl=False)
        return 0
    engine.submit(compiled, job_id)
    tell(f"Submitted {manifest} with the code in {source} ({_size(len(packed))} packed)")
    return after_submission(engine, job_id, wait, follow)


def tell_notes(job: TrainingJob) -> None:
    """What has been decided about the job that its user may not expect."""
    if job.warning:
        tell(f"Warning: {job.warning}")
    for note in job.notes:
        tell(f"Note: {note}")


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"


def after_submission(engine: Engine, job_id: str, wait: bool, follow: bool) -> int:
    """Prints the id; then follows the job, waits for it, or says how to. Returns the exit code."""
    import sys

    from ..engines.status import TRAINING_JOB
    from .following import follow_logs, stay, wait_and_tell

    training = engine.status(job_id).kind == TRAINING_JOB
    click.echo(f"Model ID: {job_id}" if training else job_id)
    sys.stdout.flush()
    if follow:
        return stay(job_id, lambda: follow_logs(engine, job_id))
    if wait:
        return stay(job_id, lambda: wait_and_tell(engine, job_id))
    from .show import suggestions

    for line in suggestions(engine.status(job_id)):
        tell(line)
    return 0
