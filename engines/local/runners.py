"""Wakes runners: light, because every command looks whether a job has lost its own."""

from __future__ import annotations

import os
import sys

from .state import Home, Job, locked

TERMINAL = ("Succeeded", "Failed", "Error")
# The shell leaves at once: nobody has to wait for the runner's end, and no terminal's end is the runner's.
_DETACHED = 'cd / && exec </dev/null >>"$0" 2>&1 && "$@" &'


def spawn(job: Job) -> None:
    """Starts a detached runner for the job. More than one does no harm: all but one leave at once."""
    runner = [sys.executable, "-P", "-m", "ffdl.engines.local.runner", str(job.home.path), job.id]
    shell = ["sh", "-c", _DETACHED, str(job.path / "runner.log"), *runner]
    os.waitpid(os.posix_spawn("/bin/sh", shell, os.environ, setsid=True), 0)


def revive(home: Home) -> list[str]:
    """Starts a runner for every job that wants one and has none. Returns their ids."""
    revived = []
    for job_id in os.listdir(home.path / "active"):
        job = Job(home, job_id)
        if not job.path.is_dir():
            with locked(home.path / "lock"):  # a job is being made under it
                if not job.path.is_dir():
                    (home.path / "active" / job_id).unlink(missing_ok=True)
        elif not job.has_runner() and (home.path / "active" / job_id).exists():  # it unlinks that before it lets go
            spawn(job)
            revived.append(job_id)
    return revived
