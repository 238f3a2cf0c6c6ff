"""Learners that train together, and one can't save for a while: nothing that all have is lost, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ffdl.learner import checkpoint
from tests.steps.pods import WAIT, Job, until

STEPS = 130
TRAIN = f"""
import os, resource, time
import numpy as np
from ffdl import learner
from ffdl.learner import checkpoint

def shared(name):
    return os.path.exists(os.path.join(os.environ["JOB_STATE_DIR"], name))

def train(job):
    state = job.restore() or {{"step": 0, "sum": 0}}
    begins = state["step"]
    print("generation", job.generation, "from", begins, flush=True)
    for step in range(begins, {STEPS}):
        if job.generation == 1 and job.rank == 1 and step == int(os.environ["FULL_AT"]):
            folder = os.path.join(os.environ["JOB_STATE_DIR"], "checkpoints", "learner-2")
            while step > 20 and not checkpoint.committed(folder):
                time.sleep(0.01)  # it is saved beside the training, which may be quicker
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        while (job.generation, step) in ((1, 110), (2, begins + 5)):
            if shared("free"):
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            opened = np.array([shared(f"gate-{{job.generation}}")], np.int32)
            job.overlay().all_reduce(opened, "max")
            if opened[0]:
                break
            job.step(step, of={STEPS}, state=state)
            print("at", step, flush=True)
            time.sleep(0.02)
        value = np.array([state["sum"] * 31 + step * (job.rank + 1)])
        job.overlay().all_reduce(value, "sum")
        state["sum"] = int(value[0]) % 1000003
        state["step"] = step + 1
        job.step(step + 1, of={STEPS}, state=state)
    print("sum", state["sum"], flush=True)

learner.run(train)
"""


def expected() -> int:
    total = 0
    for step in range(STEPS):
        total = (total * 31 * 2 + step * 3) % 1000003
    return total


def begun(job: Job, full_at: int) -> subprocess.Popen[bytes]:
    """Two learners at step 110, of which the second could save nothing since step `full_at`. The helper."""
    job.script("train.py", TRAIN)
    command = f'echo $$ > "../pid-$LEARNER_ID"; exec {sys.executable} train.py'
    job.configure(
        command,
        learners=2,
        distribution="peer",
        checkpoint_interval=None,
        checkpoint_steps=20,
        env={"FULL_AT": str(full_at), "OPENBLAS_NUM_THREADS": "1"},
    )
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    until(lambda: "at 110" in job.log(0) and "at 110" in job.log(1), "step 110")
    return helper


def folder(job: Job, number: int) -> Path:
    return job.job_file("checkpoints") / f"learner-{number}"


def saved(job: Job, number: int) -> list[int]:
    return [one.step for one in checkpoint.committed(str(folder(job, number)))]


def kill(job: Job, number: int) -> None:
    os.kill(int(job.job_file(f"pid-{number}").read_text()), signal.SIGKILL)


def completes(job: Job, helper: subprocess.Popen[bytes]) -> None:
    """With the state of a run in which nothing happened."""
    job.job_file("gate-1").touch()
    job.job_file("gate-2").touch()
    assert [job.ended(index) for index in range(2)] == [0, 0]
    assert helper.wait(WAIT) == 0
    for index in range(2):
        assert f"sum {expected()}\n" in job.log(index)


def test_all_go_on_from_the_newest_step_that_all_have(job: Job) -> None:
    """A learner that could not write for three checkpoints and is killed then costs the work since, not the job."""
    helper = begun(job, full_at=50)
    newest = saved(job, 2)[0]
    assert newest <= 50
    kill(job, 2)
    until(lambda: "generation 2 from" in job.log(0) and "generation 2 from" in job.log(1), "the next world")
    assert f"generation 2 from {newest}\n" in job.log(0)
    assert f"generation 2 from {newest}\n" in job.log(1)
    completes(job, helper)


def test_learners_stay_in_step_while_one_can_not_save(job: Job) -> None:
    """None is ahead by more than one checkpoint, however long it takes, and all go on to save once there is room."""
    helper = begun(job, full_at=50)
    ahead, *common = saved(job, 1)
    assert common == saved(job, 2)
    job.job_file("free").touch()
    after = [110, ahead, common[0]]
    until(lambda: saved(job, 1) == saved(job, 2) == after, "a checkpoint after there is room again")
    kill(job, 2)
    until(lambda: "generation 2 from 110\n" in job.log(0), "the next world")
    completes(job, helper)


def test_what_others_lack_is_not_deleted(job: Job) -> None:
    """There is no step that all have: all begin anew, and what one has stays until newer ones take its place."""
    helper = begun(job, full_at=5)
    before = saved(job, 1)
    assert before
    assert saved(job, 2) == []
    kill(job, 2)
    until(lambda: "generation 2 from 0\n" in job.log(0) and job.log(0).endswith("at 5\n"), "the next world")
    assert saved(job, 1) == before
    completes(job, helper)
    assert len(saved(job, 1)) == 3
    assert saved(job, 1) == saved(job, 2)


def test_a_damaged_one_takes_no_other_with_it(job: Job) -> None:
    """The step that all are to go on from can't be read at one of them: the job ends, and all the rest is there."""
    helper = begun(job, full_at=50)
    before = saved(job, 1)
    others = saved(job, 2)
    (file,) = (folder(job, 2) / f"step-{others[0]}").glob("state*.json")
    file.write_text("{}")
    kill(job, 2)
    assert [job.ended(index) for index in (1, 0)] == [1, 70]
    assert helper.wait(WAIT) == 0
    assert "DamagedError" in job.log(1)
    assert saved(job, 1) == before
    assert saved(job, 2) == others
