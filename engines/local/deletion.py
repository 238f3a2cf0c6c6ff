"""Deleting a job. Its mark outlasts a command that is killed: whoever looks for jobs without a runner finishes it."""

from __future__ import annotations

import os
import time

from . import leases, supervisor
from .retrieval import retrieve
from .state import Home, Job, try_lock

RESULTS = "results"


def delete(home: Home, job: Job, results: bool) -> None:
    """Ends the job's processes and removes it, what it stored too if `results`. Raises EngineError if that can't be."""
    (home.path / "active" / job.id).touch()  # before the mark: one that nobody looks for would never be seen
    try:
        job.deleting.write_text(RESULTS if results else "")
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
    pods = list(job.pods.glob("*"))
    for folder in pods:
        supervisor.terminate(folder, force=True)
    for folder in pods:
        while (seen := supervisor.observe(folder)) is not None and not seen.ended:
            time.sleep(0.05)
        supervisor.cleanup(folder)
    if job.deleting.read_text() == RESULTS:
        retrieve(home, job, "remove")
    leases.release(home, job)
    home.remove(job)
