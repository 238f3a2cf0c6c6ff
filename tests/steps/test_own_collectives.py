"""Learners that use a framework's own collectives, of which the first alone saves, as is usual with PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.steps.pods import WAIT, Job, expected_sum, until
from tests.steps.test_common_step import kill, saved

STEPS = 130
TRAIN = f"""
import os, socket, sys, time
from ffdl import learner

rank, address = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
with learner.session() as job:
    state = job.restore()
    print("restored", state and state["step"], flush=True)
    if rank == 0:
        with socket.create_server(address) as server:
            other = server.accept()[0]
        state = state or {{"step": 0, "sum": 0}}
        other.sendall(b"%09d%09d" % (state["step"], state["sum"]))
    else:
        while True:
            try:
                other = socket.create_connection(address)
                break
            except OSError:
                time.sleep(0.05)
        told = other.recv(18, socket.MSG_WAITALL) or sys.exit("the other one is gone")
        state = {{"step": int(told[:9]), "sum": int(told[9:])}}
    for step in range(state["step"], {STEPS}):
        while step == 110 and not os.path.exists(os.path.join(os.environ["JOB_STATE_DIR"], "gate")):
            time.sleep(0.02)
            job.step(step, state=state if rank == 0 else None)
        time.sleep(0.005)
        other.sendall(b"x")
        if not other.recv(1):
            sys.exit("the other one is gone")
        state["sum"] = (state["sum"] * 31 + step) % 1000003
        state["step"] = step + 1
        job.step(step + 1, of={STEPS}, state=state if rank == 0 else None)
    print("sum", state["sum"], flush=True)
"""


@pytest.mark.parametrize("what", ["kill", "halt"])
def test_who_alone_saves_loses_nothing(job: Job, what: str) -> None:
    """The others have no checkpoint, and need none: that must not take all back to the beginning."""
    job.script("train.py", TRAIN)
    command = f'echo $$ > "../pid-$LEARNER_ID"; exec {sys.executable} train.py'
    job.configure(command, learners=2, distribution="peer", checkpoint_interval=None, checkpoint_steps=20)
    helper = _start(job)
    until(lambda: (saved(job, 1) or [0])[0] >= 100, "the checkpoint of step 100")
    before = saved(job, 1)
    if what == "kill":
        kill(job, 2)
    else:
        job.suspend()
        assert [job.ended(index) for index in range(2)] == [75, 75]
        assert helper.wait(WAIT) == 75
        job.suspend(False)
        helper = _start(job)
    until(lambda: job.log(0).count("restored") == job.log(1).count("restored") == 2, "the next start")
    assert _restored(job, 0) >= before[0]
    assert "restored None\n" in job.log(1)
    assert len(saved(job, 1)) == 3
    job.job_file("gate").touch()
    assert [job.ended(index) for index in range(2)] == [0, 0]
    assert helper.wait(WAIT) == 0
    for index in range(2):
        assert f"sum {expected_sum(STEPS)}\n" in job.log(index)


def _start(job: Job) -> subprocess.Popen[bytes]:
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    return helper


def _restored(job: Job, index: int) -> int:
    """The step of the last one."""
    said = [line.split()[1] for line in job.log(index).splitlines() if line.startswith("restored")]
    return int(said[-1]) if said[-1] != "None" else 0
