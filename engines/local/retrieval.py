"""Stored results come back by the step that reads them, run outside any pod, the job's objects as its root; artifacts
are copied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ...learner import contract
from ..base import CHECKPOINT, DEFINITION, RESULTS, TRAINEDMODEL, EngineError, Refused
from ..nodes import is_training_job, raw_nodes
from ..tree import node_path
from .state import Home, Job


def download(home: Home, job: Job, what: str, folder: Path) -> Path:
    """Writes what a job has stored under `folder`; returns what was written. Raises Refused, EngineError."""
    if not is_training_job(job.workflow()):
        if what != RESULTS:
            raise Refused(
                f"{job.id} is no training job: `ffdl download {job.id}` fetches its artifacts, it has no {what}"
            )
        target = folder / f"{job.id}-artifacts"
        _artifacts(job, target)
        return target
    if what == DEFINITION:
        code = job.objects / "configmaps" / job.id / contract.CODE_FILE
        if not code.exists():
            raise Refused(f"{job.id} was submitted without code")
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{job.id}-definition.zip"
        target.write_bytes(code.read_bytes())
        return target
    if what not in (RESULTS, TRAINEDMODEL, CHECKPOINT):
        raise Refused(f"nothing called {what} to download")
    target = folder / f"{job.id}-{what}"
    retrieve(home, job, what, str(target.absolute()))
    return target


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


def _artifacts(job: Job, target: Path) -> None:
    """Copies the output artifacts of a Workflow's nodes to `target`/NODE/NAME, packed as they are. Raises Refused."""
    store, found = job.artifacts.resolve(), 0
    for node in raw_nodes(job.workflow()["status"]).values():
        for artifact in (node.get("outputs") or {}).get("artifacts") or []:
            kept = (store / str((artifact.get("s3") or {}).get("key") or ".")).resolve()
            if node.get("type") != "Pod" or store not in kept.parents or not kept.exists():
                continue
            found += 1
            place = target / node_path(job.id, node).replace("/", "_") / kept.name
            place.parent.mkdir(parents=True, exist_ok=True)
            if kept.is_dir():
                shutil.copytree(kept, place, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(kept, place)
    if not found:
        raise Refused(f"{job.id} has put out no artifacts; `ffdl logs {job.id}` prints what it wrote")
