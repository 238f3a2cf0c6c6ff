"""A process that waits in a call for a learner that is lost, or that has just ended, will not go on by itself."""

from __future__ import annotations

import sys

import pytest

from tests.steps.pods import WAIT, Job, until

WHY = "a call that waits for one that was lost has not returned for {:.0f} s: the command is started again"
SCRIPT = """
import ctypes, os, signal, time
from ffdl import learner
from ffdl.learner import contract

contract.MOVES_INTERVAL = 0.2
index = int(os.environ["LEARNER_ID"]) - 1

def train(job):
    print("generation", job.generation, "in", os.getpid(), flush=True)
    if job.generation == 1 and index == 0:
        open("../waits", "w").close()
        CALL  # as a framework's collective: one call
    if job.generation == 1 and index == 1:
        while not os.path.exists("../waits") or not os.path.exists("../works"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    if job.generation == 1 and index == 2:
        open("../works", "w").close()
        until = time.monotonic() + 8
        while time.monotonic() < until:  # a long step
            time.sleep(0.01)
        job.look()
    job.overlay().barrier()

learner.run(train)
"""


@pytest.mark.parametrize("call", ["time.sleep(1000)", "ctypes.CDLL(None).sleep(1000)"], ids=["stays", "interrupted"])
def test_one_that_waits_in_a_call_is_started_again_and_one_that_works_is_not(job: Job, call: str) -> None:
    """A framework that waits for a dead peer for half an hour, or for ever, would keep the whole job waiting."""
    job.constants["contract.LEAVE_GRACE"] = 3.0
    job.script("train.py", SCRIPT.replace("CALL", call))
    job.configure(f"exec {sys.executable} train.py", learners=3, distribution="peer", halt_grace=1.0)
    helper = job.helper()
    for index in range(3):
        job.agent(index)
    assert [job.ended(index) for index in range(3)] == [0, 0, 0]
    assert helper.wait(WAIT) == 0
    logs = [job.log(index) for index in range(3)]
    said = [[line.split() for line in log.splitlines() if line.startswith("generation ")] for log in logs]
    assert [[words[1] for words in lines] for lines in said] == [["1", "2"]] * 3
    assert [len({words[3] for words in lines}) for lines in said] == [2, 2, 1]
    assert [log.count(WHY.format(3)) for log in logs] == [1, 0, 0]


def test_it_is_started_again_in_the_next_world(job: Job) -> None:
    """Where who was lost takes long to come back, there is nothing to be started for before."""
    job.constants["contract.LEAVE_GRACE"] = 1.0
    job.script("train.py", SCRIPT.replace("CALL", "time.sleep(1000)"))
    job.configure(f"exec {sys.executable} train.py", learners=2, distribution="peer", halt_grace=1.0)
    helper, _ = job.helper(), job.agent(0)
    lost = job.agent(1)
    until(lambda: "generation 1" in job.log(0) and "generation 1" in job.log(1), "a world")
    lost.kill()
    job.ended(1)
    until(lambda: WHY.format(1) in job.log(0), "the end of the call")
    until(lambda: job.report().get("learners", {}).get("joined") == 1, "the loss")
    assert "generation 2" not in job.log(0)
    job.agent(1)
    job.job_file("works").touch()
    assert [job.ended(index) for index in range(2)] == [0, 0]
    assert helper.wait(WAIT) == 0
    assert job.log(0).count("generation ") == 2


LATE = """
import os, signal, time
from ffdl import learner

index = int(os.environ["LEARNER_ID"]) - 1

def wait_for(name):
    while not os.path.exists("../" + name):
        time.sleep(0.05)

def last(finishing):
    finishing()  # it hears no more, from here on, what becomes of this world
    open("../finished", "w").close()
    wait_for("next")

def train(job):
    print("generation", job.generation, flush=True)
    if job.generation == 1 and index == 0:
        finishing, job._finish = job._finish, lambda: last(finishing)
        return
    if job.generation == 1 and index == 1:
        wait_for("finished")
        os.kill(os.getpid(), signal.SIGKILL)
    open("../next", "w").close()
    job.overlay().barrier()

learner.run(train)
"""


def test_one_that_ends_while_the_next_world_begins_is_started_there(job: Job) -> None:
    """Its agent has heard of that world, its script has not: what it has done is not done there."""
    job.script("train.py", LATE)
    job.configure(f"exec {sys.executable} train.py", learners=2, distribution="peer", halt_grace=1.0)
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    assert [job.ended(index) for index in range(2)] == [0, 0]
    assert helper.wait(WAIT) == 0
    said = [[line for line in job.log(index).splitlines() if line.startswith("generation ")] for index in range(2)]
    assert said == [["generation 1", "generation 2"]] * 2
