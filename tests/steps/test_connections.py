"""The helper's connections, by sockets that stand for agents: those that break, and those that say nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from ffdl.learner import contract
from ffdl.steps.checkpoint import STRANGERS_MOST
from tests.steps.pods import TOKEN, WAIT, Job, Talk, until


class Agent(Talk):
    """An agent's connection to the helper."""

    def __init__(self, job: Job, index: int) -> None:
        until(lambda: job.address().get("port"), "the helper's address")
        super().__init__(socket.create_connection((job.address()["host"], job.address()["port"]), WAIT))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        about = {"role": "learner", "index": index, "incarnation": str(index), "attempt": 0, "address": "127.0.0.1"}
        self.say({"type": contract.JOIN, "token": TOKEN, "port": 1, "data": 2, **about})

    def vanish(self) -> None:
        """As a process does that is killed: what is sent to it now is answered with a reset."""
        self.close()


@contextlib.contextmanager
def agent(job: Job, index: int) -> Iterator[Agent]:
    made = Agent(job, index)
    try:
        yield made
    finally:
        made.vanish()


def test_two_that_are_lost_at_once_are_not_the_helper_s_end(job: Job) -> None:
    """Nodes die together: what one's news does to another's connection must not end the job's one helper."""
    job.configure("true", learners=2, distribution="peer")
    helper = job.helper()
    with agent(job, 0) as first, agent(job, 1) as second:
        assert second.hear(contract.WORLD)["generation"] == 1
        first.say({"type": contract.HEARTBEAT, "running": True})
        first.hear(contract.HEARTBEAT)  # the last one that was served is the first in the next turn
        os.kill(helper.pid, signal.SIGSTOP)  # so that it hears of both in one turn
        until(lambda: Path(f"/proc/{helper.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "its stop")
        first.say({"type": contract.RESTARTED})
        second.vanish()
        os.kill(helper.pid, signal.SIGCONT)
        with agent(job, 1) as third:
            third.hear(contract.WELCOME)
            assert third.hear(contract.WORLD)["generation"] > 1
    assert helper.poll() is None


def test_the_silent_keep_nobody_out(job: Job) -> None:
    """A scanner that opens connections and says nothing must not cost a member its place in the job."""
    job.configure("true", learners=2, distribution="peer")
    helper = job.helper()
    with agent(job, 0) as member, contextlib.ExitStack() as silent:
        member.hear(contract.WELCOME)
        address = (job.address()["host"], job.address()["port"])
        for _ in range(2 * STRANGERS_MOST):
            silent.enter_context(socket.create_connection(address, WAIT))
        with agent(job, 1) as newcomer:
            newcomer.hear(contract.WORLD)
        member.hear(contract.WORLD)
    assert helper.poll() is None
