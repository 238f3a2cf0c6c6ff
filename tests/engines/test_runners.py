"""Which jobs get a runner: those that want one, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffdl.engines.local import runners
from ffdl.engines.local.state import Home, Job


def active(home: Home, job_id: str) -> Job:
    job = Job(home, job_id)
    job.path.mkdir(parents=True)
    (home.path / "active").mkdir(exist_ok=True)
    (home.path / "active" / job_id).touch()
    return job


def test_a_job_that_comes_to_rest_meanwhile_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the jobs and the look at their runners a runner may take its job off the list and leave."""
    home = Home(tmp_path)
    for job_id in ("comes-to-rest", "lost-its-runner"):
        active(home, job_id)
    spawned = []
    monkeypatch.setattr(runners, "spawn", lambda job: spawned.append(job.id))

    def rests(job: Job) -> bool:
        if job.id == "comes-to-rest":
            (home.path / "active" / job.id).unlink()
        return False

    monkeypatch.setattr(Job, "has_runner", rests)
    assert runners.revive(home) == spawned == ["lost-its-runner"]
