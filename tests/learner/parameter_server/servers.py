"""Parameter servers as processes of their own, and learners that use them, as threads of a test."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ffdl.learner import contract
from ffdl.learner.optimizers import SGD, Optimizer
from ffdl.learner.parameter_server import ParameterServer
from ffdl.learner.rendezvous import Place
from tests.learner.conftest import WAIT, AgentEnd, Start

SERVING = "from ffdl.learner import serving; {}; serving.run(serving.Server().serve)"
PLAIN = SGD(1.0)


class Job:
    """`size` learners and `servers` servers of one world, in `mode`."""

    def __init__(
        self, folder: Path, start: Start, size: int, servers: int, mode: str, step: int | None = -1, patch: str = ""
    ) -> None:
        self.size, self.mode, self.key = size, mode, os.urandom(32)
        self.doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(servers)]
        self.addresses = [door.getsockname()[:2] for door in self.doors]
        self.agents = [AgentEnd(folder / f"server-{number}") for number in range(servers)]
        for number, (agent, door) in enumerate(zip(self.agents, self.doors, strict=True)):
            agent.door = door
            agent.world |= {
                "rank": number,
                "size": size,
                "mode": mode,
                "servers": self.addresses,
                "key": self.key.hex(),
                "step": step,
            }
        self.learners: list[ParameterServer] = []
        self.start, self._until, self._patch = start, time.monotonic() + WAIT, patch
        self.processes = [self.begin(number) for number in range(servers)]

    def begin(self, number: int) -> Any:
        script = SERVING.format(self._patch or "pass")
        return self.start(script, env={"FFDL_AGENT_SOCKET": str(self.agents[number].path)})

    def halt(self) -> None:
        """Waits until all servers have."""
        for agent in self.agents:
            agent.halt()
        for process in self.processes:
            assert process.wait(WAIT) == contract.EXIT_AGAIN

    def begin_again(self) -> None:
        """All servers, as they are killed if they are still there."""
        for number, process in enumerate(self.processes):
            process.kill()
            process.wait()
            self.processes[number] = self.begin(number)

    def place(self, rank: int) -> Place:
        return Place(rank, 3, self.key)

    def learner(self, rank: int, parameters: Any, optimizer: Optimizer = PLAIN, **options: Any) -> ParameterServer:
        options.setdefault("look", self._look)
        learner = ParameterServer(self.place(rank), self.addresses, parameters, optimizer, self.mode, **options)
        self.learners.append(learner)
        return learner

    def _look(self) -> None:
        assert time.monotonic() < self._until, "it hangs"

    def all(self, body: Callable[[int], Any]) -> list[Any]:
        """What `body(rank)` returns at each learner, all at once."""
        with ThreadPoolExecutor(self.size) as pool:
            coming = [pool.submit(body, rank) for rank in range(self.size)]
            return [one.result(WAIT) for one in coming]

    def close(self) -> None:
        for learner in self.learners:
            learner.close()
        for process in self.processes:
            process.kill()
        for agent in self.agents:
            agent.go_away()
        for door in self.doors:
            door.close()


Begin = Callable[..., Job]
