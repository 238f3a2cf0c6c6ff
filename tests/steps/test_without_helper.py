"""Learners whose helper is away: what they do meanwhile, and for how long."""

from __future__ import annotations

import sys
import time

from tests.steps.pods import TRAIN, WAIT, Job, until


def test_without_a_helper_the_agent_asks_again(job: Job) -> None:
    """A pod that finds no helper must free its GPUs, and wait longer the next time."""
    job.constants["contract.HELPER_WAIT_FIRST"] = 0.5
    job.configure("true")
    job.agent()
    assert job.ended() == 75


def test_training_goes_on_without_a_helper_for_a_while(job: Job) -> None:
    """A helper that is moved must not stop a training; one that never comes back must."""
    job.constants["contract.HELPER_ABSENCE"] = 2.0
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 100000")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    began = time.monotonic()
    helper.kill()
    assert job.ended() == 75
    assert time.monotonic() - began > 1.9
    assert "no helper" in job.log()


def test_an_outcome_waits_for_the_next_helper(job: Job) -> None:
    """A training that ends while the helper is away is not run again."""
    job.configure("echo run; while ! [ -e ../go ]; do sleep 0.05; done")
    helper, agent = job.helper(), job.agent()
    until(lambda: "run" in job.log(), "the start")
    helper.kill()
    helper.wait()
    job.job_file("go").touch()
    time.sleep(0.3)
    assert agent.poll() is None
    helper = job.helper()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert job.log() == "run\n"
