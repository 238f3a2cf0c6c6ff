"""Runs what other learners ask for, in place of this learner's own command: `python -m ffdl.steps.remote_server`.

So it is where one learner alone runs the command, and a launcher in it starts processes at all. What is asked for gets
the environment of this learner's command and ends when who has asked hangs up.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping

from ..learner import contract
from ..learner.channel import Channel
from ..learner.rendezvous import Place, arrivals
from . import remote
from .command import find_shell
from .environment import inherited
from .family import end_session

LOOK = 1.0  # seconds between two looks at a command that says nothing
KILLED = (-signal.SIGKILL, -signal.SIGTERM)


class Server:
    """`ends`: nothing more is to be run. `killed`: a command was killed by others; the code to exit with."""

    def __init__(self, place: Place, environment: Mapping[str, str]) -> None:
        self.ends = False
        self.killed = 0
        self._place, self._environment = place, environment
        self._threads: list[threading.Thread] = []

    @property
    def busy(self) -> bool:
        """A command is running."""
        return any(thread.is_alive() for thread in self._threads)

    def serve(self, connection: socket.socket) -> None:
        """Runs what is asked for on `connection`, in a thread."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
        self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            command = remote.hear(connection, self._place)
            process = subprocess.Popen(
                [find_shell(self._environment), "-c", command],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            try:
                self._follow(connection, process)
            finally:
                end_session(process.pid)
                process.wait()

    def _follow(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as selector, process.stdout, process.stderr:
            selector.register(connection, selectors.EVENT_READ)
            for kind, stream in ((remote.OUT, process.stdout), (remote.ERR, process.stderr)):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, kind)
            while True:
                status = process.poll()  # before the look at what it says: what comes after its end is not lost
                for key, _ in selector.select(0.0 if status is not None else LOOK):
                    if key.data is None:
                        return  # it has hung up
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        remote.send(connection, key.data, data)
                    else:
                        selector.unregister(key.fileobj)
                if status is None and len(selector.get_map()) == 1:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        status = process.wait(LOOK)
                if status is not None:
                    break
        if status in KILLED:
            self.killed = 128 - status
        remote.send(connection, remote.STATUS, bytes([status if status >= 0 else 128 - status]))


class _OverError(Exception):
    """Nothing is to be run any more."""


def serve(server: Server, place: Place, listener: socket.socket, channel: Channel) -> None:
    """Until the job halts, or this program is to end, or a command was killed."""

    def look() -> None:
        channel.look()
        server.ends |= channel.halt
        if server.killed or (server.ends and not server.busy):
            raise _OverError

    with contextlib.suppress(_OverError):
        for _, connection in arrivals(place, [listener], lambda rank: not server.ends, look):
            connection.setblocking(True)
            server.serve(connection)


def main() -> int:
    """The program."""
    environment = inherited()
    channel, world = remote.enter(environment[contract.AGENT_SOCKET_ENV])
    place = Place(world.rank, world.generation, world.key)
    server = Server(place, environment)

    def end(*_: object) -> None:
        server.ends = True

    signal.signal(signal.SIGTERM, end)
    serve(server, place, channel.listener(), channel)
    channel.close({"type": contract.HALTED, "step": 0} if channel.halt else {"type": "bye"})
    return server.killed


if __name__ == "__main__":
    sys.exit(main())
