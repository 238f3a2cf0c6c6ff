"""Stored results come back by the step that reads them, run outside any pod, the job's objects as its root."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ...learner import contract
from ..base import EngineError
from .state import Home, Job


def retrieve(home: Home, job: Job, *arguments: str) -> None:
    """Runs the step with `arguments`: what to fetch and where to, or `remove`. Raises EngineError."""
    with tempfile.TemporaryDirectory() as root:
        spec = contract.JobSpec.from_json((job.objects / "configmaps" / job.id / contract.JOB_FILE).read_text())
        places = {
            contract.CONFIG_DIR: job.objects / "configmaps" / job.id,
            contract.STORE_SECRET_DIR: job.objects / "secrets" / f"{job.id}-store",
            contract.STORE_DIR: home.path / "claims" / contract.RESULTS_CLAIM,
        }
        if spec.results is not None and spec.results.kind == "host":
            volumes = job.workflow()["spec"].get("volumes", [])
            places[contract.HOST_RESULTS_DIR] = next(
                Path(v["hostPath"]["path"]) for v in volumes if v["name"] == "host-results"
            )
        for path, real in places.items():
            link = Path(root + path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(real)
        env = {**os.environ, contract.ROOT_ENV: root, contract.JOB_ID_ENV: job.id}
        command = [sys.executable, "-P", "-m", "ffdl.steps.retrieve", *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise EngineError(lines[-1])
