"""Our own Workflows: training jobs, compiled as `ffdl train` does it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

from ffdl.engines.archive import pack_code
from ffdl.workflows.compile import compile_job
from ffdl.workflows.job import TrainingJob
from ffdl.workflows.manifest import load

from .case import Case

EXAMPLES = Path(__file__).parents[2] / "examples"
_LONGEST = 1800.0  # seconds; a model is trained, on a cluster that does other things too
_IN_BASH = ("framework.version=localhost/debian:bookworm", "cpus=0.1")
# name -> the example, and what of its manifest is changed
JOBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "training-bash": ("bash", _IN_BASH),
    "training-digits": ("digits", ("cpus=0.2",)),
    "training-fails": ("bash", (*_IN_BASH, "framework.command=exit 3")),
    "training-tries-again": ("bash", (*_IN_BASH, "framework.command=exit 3", "retry.attempts=1")),
    "training-of-three": ("bash", (*_IN_BASH, "learners=3", "completion=all")),
}


def jobs() -> Iterator[Case]:
    """Training jobs as Workflows, with what is to be submitted beside each."""
    for name, (example, changes) in JOBS.items():
        folder = EXAMPLES / example
        text = (folder / "manifest.yml").read_bytes()
        job = TrainingJob.from_manifest(load(text, "manifest.yml", changes), environ={})
        compiled = compile_job(job, code=pack_code(folder, text), job_id=name, manifest_text=text)
        workflow = copy.deepcopy(compiled.workflow)
        workflow["metadata"]["name"] = name
        workflow["metadata"].pop("generateName", None)
        yield Case("ours", workflow, seconds=_LONGEST, compiled=compiled)
