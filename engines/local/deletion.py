"""Deleting a job. Its mark outlasts a command that is killed: whoever looks for jobs without a runner finishes it."""

from __future__ import annotations

import os
import shutil
import time

from ...learner import contract
from . import leases, supervisor
from .retrieval import retrieve
from .state import NO_ROOM, Home, Job, try_lock

RESULTS = "results"
_PATIENCE = 2.0  # seconds for pods that were killed to say so


def delete(home: Home, job: Job, results: bool) -> None:
    """Ends the job's processes and removes it, what it stored too if `results`. Raises EngineError if that can't be."""
    (home.path / "active" / job.id).touch()  # before the mark: one that nobody looks for would never be seen
    try:
        contract.atomic_write(str(job.deleting), RESULTS.encode() if results else b"", 0o600)  # its runner waits for it
        while (lock := try_lock(job.runner_lock)) is None:
            time.sleep(0.05)  # its runner sees the mark and leaves
    except FileNotFoundError:  # somebody else has deleted it
        return
    try:
        if job.path.is_dir():
            carry_out(home, job)
    finally:
        os.close(lock)


def carry_out(home: Home, job: Job) -> None:
    """To be called under the runner's lock of a job that is marked. Raises EngineError."""
    try:
        _end_pods(job)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _make_room(job)
        _end_pods(job)
    if job.deleting.read_text() == RESULTS and (job.objects / "configmaps" / job.id / contract.JOB_FILE).exists():
        retrieve(home, job, "remove")
    leases.release(home, job)
    home.remove(job)


def _end_pods(job: Job) -> None:
    pods = list(job.pods.glob("*"))
    for folder in pods:
        supervisor.terminate(folder, force=True)
    began = time.monotonic()
    for folder in pods:
        while (seen := supervisor.observe(folder)) is not None and not seen.ended:
            if time.monotonic() - began > _PATIENCE:
                _make_room(job)
            time.sleep(0.05)
        supervisor.cleanup(folder)


def _make_room(job: Job) -> None:
    """How a pod ended is written down. On a full disk the job's own data, which is to go anyway, goes first."""
    shutil.rmtree(job.path / "claims", ignore_errors=True)
