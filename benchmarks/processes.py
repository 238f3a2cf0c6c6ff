"""For the other programs here: learners, and servers, as processes of this machine, without an engine around them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from collectives import library, serve

PORT = 7070  # in a namespace of its own
DIGITS = os.path.join(os.path.dirname(__file__), "..", "examples", "digits")


class Together(NamedTuple):
    """What one of them is told: its rank among `size` learners (a server's is above these), and where all are."""

    rank: int
    size: int
    servers: int
    mode: str
    door: int
    addresses: list[tuple[str, int]]

    @classmethod
    def read(cls, text: str) -> tuple[Together, dict[str, Any]]:
        """As `launched` has written it, and what else it was told."""
        told = json.loads(text)
        return cls(**told.pop("together")), told

    def listener(self) -> socket.socket:
        if self.door < 0:
            return socket.create_server(self._pairs(self.rank, self.rank + 1)[0])
        return socket.socket(fileno=self.door)

    def overlay(self, **options: Any) -> Any:
        from ffdl.learner.overlay import Overlay
        from ffdl.learner.rendezvous import Place

        return Overlay(Place(self.rank, 1, b"k"), self._pairs(0, self.size), self.listener(), **options)

    def parameter_server(self, parameters: Any, optimizer: Any, **options: Any) -> Any:
        from ffdl.learner.parameter_server import ParameterServer
        from ffdl.learner.rendezvous import Place

        servers = self._pairs(self.size, self.size + self.servers)
        return ParameterServer(Place(self.rank, 1, b"k"), servers, parameters, optimizer, self.mode, **options)

    def serve(self) -> None:
        """Is a server, until standard input ends."""
        serve(self.rank - self.size, self.size, self.mode, self.listener())

    def _pairs(self, begin: int, end: int) -> list[tuple[str, int]]:
        return [(host, port) for host, port in self.addresses[begin:end]]


def launched(
    program: str, size: int, servers: int = 0, mode: str = "", inside: Sequence[str] = (), **about: Any
) -> Any:
    """Starts `program --worker …` for each learner and server, with one thread each. What the first learner prints.

    Its end is that of all. `about` goes to each. `inside`: the network namespaces, of `link.links`, that they are in.
    """
    ranks = range(size + servers)
    doors = [] if inside else [socket.create_server(("127.0.0.1", 0)) for _ in ranks]
    addresses = [door.getsockname()[:2] for door in doors] or [(f"10.77.0.{rank + 1}", PORT) for rank in ranks]
    path = os.pathsep.join([str(library()), DIGITS])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    processes = []
    for rank in ranks:
        door = doors[rank].fileno() if doors else -1
        together = Together(rank, size, servers, mode, door, addresses)._asdict()
        command = [sys.executable, program, "--worker", json.dumps({"together": together, **about})]
        processes.append(
            subprocess.Popen(
                [*(["ip", "netns", "exec", inside[rank]] if inside else []), *command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[] if inside else [door],
                text=True,
            )
        )
    for door in doors:
        door.close()
    try:
        said = processes[0].communicate()[0]
        if processes[0].returncode:
            raise SystemExit(f"learner 1 of {program} ended with {processes[0].returncode}")
    finally:
        for process in processes[1:]:
            with contextlib.suppress(OSError):
                process.kill()
            process.communicate()
    return json.loads(said)
