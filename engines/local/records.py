"""What is written when a job is made: its Workflow, the objects that it reads, and what it has of its submitter."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...learner import contract
from ..base import Refused
from ..nodes import is_training_job
from ..resubmission import job_file
from . import environment, sandbox
from .state import Job, write_json

Objects = Mapping[str, Mapping[str, bytes]]  # contents by key, by the object's name

_OWN = (contract.ANNOTATION_REASON, contract.ANNOTATION_STOP)  # annotations that a job gets while it runs


def write(job: Job, workflow: dict[str, Any], python: str, store: Mapping[str, str]) -> None:
    """Writes a new Workflow, and this process's environment for its pods; `store`: what only our own steps get.

    What keeps its pods together is decided here, once: it must not change while the job runs. Raises OSError,
    ValueError (FFDL_ISOLATION).
    """
    metadata = workflow["metadata"]
    annotations = {**(metadata.get("annotations") or {}), contract.ANNOTATION_RELEASED: "true"}
    own = {"uid": token(), "namespace": environment.NAMESPACE, "creationTimestamp": _now(), "annotations": annotations}
    _write_workflow(job, {**workflow, "metadata": {**metadata, **own}})
    env = environment.user_environment(python, os.environ)
    known = {"python": python, "env": env, "store": store, "isolation": sandbox.available()}
    write_json(job.path / "environment.json", known)


def _write_workflow(job: Job, workflow: dict[str, Any]) -> None:
    kept = {key: value for key, value in workflow.items() if key != "status"}
    write_json(job.control / contract.CONTROL_WORKFLOW, kept)
    if workflow.get("status"):
        job.write_status(workflow["status"])


def write_objects(job: Job, kind: str, objects: Objects) -> None:
    """ConfigMaps or Secrets, as folders of files."""
    for name, files in objects.items():
        write_files(job.objects / kind / name, files)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, mode=0o700)
    for name, data in files.items():
        contract.atomic_write(str(folder / name), data, 0o600)


def again(old: Job) -> dict[str, Any]:
    """The Workflow of a job as it was submitted."""
    source = old.workflow()
    stored = source.pop("status").get("storedTemplates")
    for key in ("suspend", "shutdown"):
        source["spec"].pop(key, None)
    annotations = {k: v for k, v in (source["metadata"].get("annotations") or {}).items() if k not in _OWN}
    again = {**source, "metadata": {**source["metadata"], "annotations": annotations}}
    return again | ({"status": {"storedTemplates": stored}} if stored else {})


def job_file_again(old: Job, from_checkpoint: bool) -> bytes | None:
    """JOB_FILE of the job that runs `old` again; None for what is no training job. Raises Refused."""
    if is_training_job(old.workflow()):
        name = old.objects / "configmaps" / old.id / contract.JOB_FILE
        return job_file(name.read_bytes(), old.id, from_checkpoint)
    if from_checkpoint:
        raise Refused(f"{old.id} is no training job: it has no checkpoint to go on from")
    return None


def copy(old: Job, job: Job, workflow: dict[str, Any], job_json: bytes | None) -> None:
    """Writes the record of `job`, which runs the `workflow` of `old` again with the same objects and environment.

    `job_json` is its `job_file_again`.
    """
    metadata = {**workflow["metadata"], "name": job.id, "uid": token(), "creationTimestamp": _now()}
    _write_workflow(job, {**workflow, "metadata": metadata})
    shutil.copy2(old.path / "environment.json", job.path / "environment.json")
    training = job_json is not None
    for kind in ("configmaps", "secrets"):
        for folder in sorted((old.objects / kind).glob("*")):
            name = folder.name.replace(old.id, job.id) if training else folder.name  # ours bear the job's name
            shutil.copytree(folder, job.objects / kind / name)
    if job_json is not None:
        secret = job.objects / "secrets" / job.id / contract.TOKEN_FILE
        contract.atomic_write(str(secret), token().encode(), 0o600)
        contract.atomic_write(str(job.objects / "configmaps" / job.id / contract.JOB_FILE), job_json, 0o600)


def token() -> str:
    return os.urandom(24).hex()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
