"""An agent whose way to the helper breaks at the very moment at which it has something to say."""

from __future__ import annotations

import json
import os
import signal
import socket

from ffdl.learner import contract
from tests.steps.pods import WAIT, Job, Talk, until

WORLD = {"generation": 1, "rank": 0, "size": 2, "addresses": [], "servers": [], "mode": "", "key": "", "step": -1}


class Helper(Talk):
    """What stands for a helper: an agent's connection to it."""

    def __init__(self, listener: socket.socket) -> None:
        listener.settimeout(WAIT)
        connection, _ = listener.accept()
        connection.settimeout(WAIT)
        super().__init__(connection)
        self.join = self.hear(contract.JOIN)
        self.say({"type": contract.WELCOME, "epoch": 1, "generation": 1})


def test_a_command_that_starts_again_unheard_is_told_of_again(job: Job) -> None:
    """Told once, and to nobody: the others would wait for a learner that waits for them."""
    job.configure("echo $$ > ../pid; sleep 600", learners=2, distribution="peer")
    address = job.shared / "ffdl/helper/address.json"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        address.parent.mkdir(exist_ok=True)
        address.write_text(json.dumps({"host": "127.0.0.1", "port": port, "epoch": 1}))
        job.agent()
        helper = Helper(listener)
        helper.say({"type": contract.WORLD, **WORLD})
        until(lambda: job.job_file("pid").exists() and job.job_file("pid").read_text().strip(), "the command")
    helper.close()
    os.killpg(int(job.job_file("pid").read_text()), signal.SIGKILL)
    until(lambda: "it is started again" in job.log(), "its end")
    with socket.create_server(("127.0.0.1", port)) as listener:
        helper = Helper(listener)
        assert helper.join["running"] is False
        assert helper.hear(contract.RESTARTED)["generation"] == 1
        helper.close()
