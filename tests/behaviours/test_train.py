"""The main line: a manifest and a folder go in, a trained model comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.behaviours.user import User

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_job_trains_and_its_results_are_stored(user: User) -> None:
    """A user relies on one command from code to model, and on everything about the run being kept."""
    job = user.train(user.job())
    done = user.ffdl("wait", job)
    assert user.ffdl("status", job).stdout.strip() == "COMPLETED", done
    stored = {str(path.relative_to(user.results(job))) for path in user.results(job).rglob("*") if path.is_file()}
    assert {"model.npy", "_submitted_code/model.zip", "learner-1/training-log.txt", "status.json"} <= stored
    record = json.loads((user.results(job) / "status.json").read_text())
    assert record["outcome"] == "Succeeded"
    assert "done" in user.ffdl("logs", job).stdout
    assert user.engine.status(job).step == 150, "the last step is told too"
    user.until_at_rest()  # no process while a job is done


@pytest.mark.smoke
def test_digits_learn_to_97_percent(user: User) -> None:
    """The first example a new user runs: real data, a real network, a real accuracy."""
    done = user.ffdl("train", str(EXAMPLES / "digits" / "manifest.yml"), "--follow", timeout=280)
    job = done.stdout.split("Model ID: ")[1].split()[0]
    results = json.loads((user.results(job) / "results.json").read_text())
    assert results["accuracy"] >= 0.97


def test_a_version_that_is_out_of_date_runs_in_another_image_and_says_so(user: User) -> None:
    """A site takes images away; jobs that name them go on, and nobody has to guess why they behave differently."""
    (user.folder / "site.yml").write_text("numpy: {outdated: [{versions: [old], runs: latest, because: it is gone}]}")
    user.env["FFDL_CATALOGUE"] = str(user.folder / "site.yml")
    framework = {"name": "numpy", "version": "old", "command": "python -c 'import numpy; print(6 * 7)'"}
    done = user.ffdl("train", str(user.job(framework=framework) / "manifest.yml"))
    assert "Warning: numpy old is outdated (it is gone); " in done.stderr
    (job,) = user.jobs
    del user.env["FFDL_CATALOGUE"]
    status = user.until_over(job)
    assert (status.state, user.ffdl("logs", job).stdout) == ("COMPLETED", "42\n")
    assert status.warning.startswith("numpy old is outdated (it is gone); ")
    assert status.warning in user.ffdl("show", job).stdout
