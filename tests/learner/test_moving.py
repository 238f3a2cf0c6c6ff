"""What tells a script that works for long between two steps from one that waits for ever in a call."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.learner.conftest import AgentEnd, Start

SCRIPT = """
import os, sys, threading, time
from ffdl import learner
from ffdl.learner import checkpoint, contract

contract.MOVES_INTERVAL = 0.1

def told():
    print("told", flush=True)
    return sys.stdin.buffer.raw.read(1)  # one call: no Python is executed until there is something to read

def save(job):
    write = checkpoint.write
    checkpoint.write = lambda *_, **__: told()  # a disk that takes long
    job.save({})
    checkpoint.write = write

def train(job):
    if job.generation == 4:
        return told()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        WAYS[sys.argv[1]](job)
    while True:
        job.look()

WAYS = {
    "python": lambda job: sum(range(1000)),
    "sleeps": lambda job: time.sleep(0.01),
    "call": lambda job: told(),
    "save": save,
}
learner.run(train)
"""


def begin(agent: AgentEnd, start: Start, way: str) -> subprocess.Popen[str]:
    agent.world |= {"size": 2, "addresses": [["", 0], ["", 0]], "key": "00", "step": None}
    return start(SCRIPT, way, env={"FFDL_AGENT_SOCKET": str(agent.path)}, stdin=subprocess.PIPE)


@pytest.mark.parametrize("way", ["python", "sleeps", "save"])
def test_a_long_step_and_a_long_save_move(agent: AgentEnd, start: Start, way: str) -> None:
    """A step of minutes, a disk that takes as long: the process is alive and is to be left in peace."""
    process = begin(agent, start, way)
    if way == "save":
        assert process.stdout.readline() == "told\n"
        agent._news.queue.clear()
    for _ in range(3):
        assert agent.expect("moves")["generation"] == 3


def test_a_call_that_does_not_return_does_not_move(agent: AgentEnd, start: Start) -> None:
    """A thread beside it can do as it likes: the training goes on where its call returns, and not before."""
    process = begin(agent, start, "call")
    assert process.stdout.readline() == "told\n"
    time.sleep(0.5)
    before = sum(message["type"] == "moves" for message in agent.said)
    time.sleep(1.0)
    assert sum(message["type"] == "moves" for message in agent.said) == before
    process.stdin.write("x")
    process.stdin.flush()
    for _ in range(3):
        agent.expect("moves")


def test_who_enters_the_next_world_says_so(agent: AgentEnd, start: Start) -> None:
    """Before anything else: what it calls there may take its time."""
    process = begin(agent, start, "sleeps")
    agent.expect("moves", generation=3)
    agent.tell({**agent.world, "generation": 4})
    assert process.stdout.readline() == "told\n"
    agent.expect("moves", generation=4)
    _, errors = process.communicate("x", timeout=60)
    assert process.returncode == 0, errors
    agent.expect("bye")
