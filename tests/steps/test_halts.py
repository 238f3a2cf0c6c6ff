"""Halt and resume, by agent and helper as real processes: a script loses nothing, and ends in time."""

from __future__ import annotations

import json
import random
import re
import sys
import time

from ffdl.learner import contract
from tests.steps.pods import TRAIN, WAIT, Job, expected_sum, until


def test_halts_at_random_moments_lose_nothing(job: Job) -> None:
    """A halted and resumed run computes what an undisturbed one does."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 400")
    helper, _ = job.helper(), job.agent()
    for number in range(3):
        until(lambda: job.log().count("from ") > number, "the start")  # noqa: B023 - called at once
        assert not (job.shared / "ffdl/helper/halted").exists()  # a stale one would halt whoever loses the helper
        time.sleep(chance.uniform(0.0, 0.9))
        job.suspend()
        assert job.ended() == 75
        assert helper.wait(WAIT) == 75
        assert (job.shared / "ffdl/helper/halted").exists()
        job.suspend(False)
        helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert not (job.shared / "ffdl/helper/halted").exists()
    assert f"sum {expected_sum(400)}" in job.log()
    assert job.log().count("halted at step") == 3


def test_before_a_resumed_job_steps_again_it_is_known_how_far_it_is(job: Job) -> None:
    """Large models take minutes to be loaded: the list of jobs says "24%" meanwhile, not nothing."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 100000")
    helper, _ = job.helper(), job.agent()
    until(lambda: (job.report().get("step") or 0) > 3, "steps")
    job.suspend()
    assert (job.ended(), helper.wait(WAIT)) == (75, 75)
    (job.control / contract.CONTROL_REPORT).unlink()
    job.suspend(False)
    job.helper()
    until(lambda: job.report().get("message") == "waiting for learners: 0 of 1 have joined", "the next helper's report")
    report, halted = job.report(), int(re.search(r"halted at step (\d+)", job.log())[1])
    assert (report["step"], report["of"], report["progress"]) == (halted, 100000, f"{halted}/100000")
    assert report["eta"] is None
    job.agent()
    until(lambda: job.report()["step"] > halted and job.report()["eta"] is not None, "more steps")


def test_halt_and_the_helper_killed_in_the_same_second(job: Job) -> None:
    """The marker and the next helper finish a halt that a dying helper began; nobody trains on in a halted job."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 100000")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    job.suspend()
    until(lambda: (job.shared / "ffdl/helper/halted").exists(), "the marker")
    helper.kill()
    helper.wait()
    assert job.ended() == 75
    assert job.helper().wait(WAIT) == 75
    assert (job.shared / "ffdl/helper/halted").exists()


def test_suspended_before_any_learner_came(job: Job) -> None:
    """Halting during the download leaves no helper behind, and none blocks the resume."""
    job.configure("true")
    helper = job.helper()
    until(job.address, "the address")
    job.suspend()
    assert helper.wait(WAIT) == 75
    assert job.helper().wait(WAIT) == 75
    job.suspend(False)
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0


def test_halted_and_resumed_within_a_second(job: Job) -> None:
    """Whoever changes their mind at once is not stuck: a begun halt is finished, its marker gone."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 300")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    for _ in range(3):
        job.suspend()
        time.sleep(0.1)
        job.suspend(False)
        time.sleep(0.1)
    code = helper.wait(WAIT)
    assert code in (0, 75)
    if code == 75:
        assert job.ended() == 75
        helper, _ = job.helper(), job.agent()
        assert helper.wait(WAIT) == 0
    assert job.ended() == 0
    assert not (job.shared / "ffdl/helper/halted").exists()


def test_a_plain_script_gets_a_signal_and_time(job: Job) -> None:
    """A script that knows nothing of us can save on SIGTERM; what it does after counts as halted, not as done."""
    job.configure("trap 'echo saved > $CHECKPOINT_DIR/own; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    helper, _ = job.helper(), job.agent()
    until(lambda: "up" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75
    assert job.job_file("checkpoints/own").read_text() == "saved\n"


def test_a_script_that_ignores_the_signal_is_killed(job: Job) -> None:
    """A halt frees the GPUs within halt_grace whatever the script does."""
    job.configure("trap '' TERM; echo up; while :; do sleep 0.1; done", halt_grace=1.0)
    helper, _ = job.helper(), job.agent()
    until(lambda: "up" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75


def test_a_shell_that_goes_on_after_its_script_halted_is_not_done(job: Job) -> None:
    """`python a.py; echo x` ends with 0 although the training was cut short."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 100000; echo x")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75


def test_sigterm_to_the_agent_is_a_halt_of_its_pod(job: Job) -> None:
    """A drained node costs no more than the step that was under way."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 200")
    helper, agent = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    agent.terminate()
    assert job.ended() == 75
    assert "halted at step" in job.log()
    job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert f"sum {expected_sum(200)}" in job.log()


def shipped(job: Job) -> set[str]:
    root = job.shared / "ffdl/results"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_checkpoints_are_shipped_while_training_goes_on(job: Job) -> None:
    """The job's volume may be lost with its node: the store has what was committed."""
    job.script("train.py", TRAIN)
    command = f"{sys.executable} train.py 100000"
    store = contract.Store("claim", "out")
    job.configure(command, checkpoint_interval=None, checkpoint_steps=50, results=store)
    helper, _ = job.helper(), job.agent()
    until(lambda: any(name.endswith("COMMITTED") for name in shipped(job)), "a shipped checkpoint")
    assert job.report()["message"] == "training"
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75
    last = max((job.shared / "job/checkpoints").glob("step-*"), key=lambda path: int(path.name[5:])).name
    assert any(last in name and name.endswith("COMMITTED") for name in shipped(job))
    assert any(name.endswith("learner-1/training-log.txt") for name in shipped(job))


def test_a_halt_while_the_store_is_down(job: Job) -> None:
    """The GPUs are freed all the same; what is missing is noted, and shipped on resume."""
    job.constants["contract.SHIP_WAIT_ON_HALT"] = 2.0
    job.script("train.py", TRAIN)
    store = contract.Store("claim", "out")
    job.configure(f"{sys.executable} train.py 1500", checkpoint_interval=None, checkpoint_steps=50, results=store)
    (job.shared / "ffdl/results").rmdir()
    (job.shared / "ffdl/results").write_text("no folder")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75
    journal = max((job.shared / "ffdl/journal").glob("epoch-*.jsonl")).read_text()
    assert json.loads(journal.splitlines()[-1])["kind"] == "unshipped"
    assert "unshipped" in job.report()["message"]
    (job.shared / "ffdl/results").unlink()
    (job.shared / "ffdl/results").mkdir()
    job.suspend(False)
    helper, _ = job.helper(), job.agent()
    until(lambda: any(name.endswith("COMMITTED") for name in shipped(job)), "a shipped checkpoint")
    job.annotate(contract.ANNOTATION_STOP, "now")
    assert job.ended() == 70
    assert helper.wait(WAIT) == 0
