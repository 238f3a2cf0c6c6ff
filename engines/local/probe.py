"""Readiness: whether a container answers, asked by a short-lived process so that the supervisor never waits."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import NoReturn

from ...learner import contract
from . import linux, processes
from .pod import EXEC, HTTP, Container, Probe

_NAMESPACES = ("user", "mnt", "uts", "pid")
_SAID = 64  # bytes of an answer that matter


class Probing:
    """Asks `what`, whose first process is `first`, as its probe says until it has been ready once. `root` is where its
    mounts are if it has no namespaces, else ''.

    Argo asks no further: a daemon that has been up counts as up until it ends.
    """

    def __init__(self, what: Container, address: str, first: int, root: str) -> None:
        assert what.probe is not None
        self._what, self._probe, self._address, self._first, self._root = what, what.probe, address, first, root
        self.ready = False
        self._next: float | None = time.monotonic() + self._probe.delay
        self._asker: int | None = None
        self._deadline = 0.0
        self._successes = 0

    def due(self) -> float | None:
        """When something has to be done, in seconds of time.monotonic()."""
        return self._deadline if self._asker is not None else self._next

    def attend(self) -> None:
        """Does what is due."""
        now = time.monotonic()
        if self._asker is not None and now >= self._deadline:
            processes.send(self._asker, signal.SIGKILL)
            self._deadline = now + self._probe.period
        elif self._asker is None and self._next is not None and now >= self._next:
            self._deadline, self._next = now + self._probe.timeout, now + self._probe.period
            self._asker = os.fork()
            if self._asker == 0:
                self._ask()

    def reaped(self, pid: int, status: int) -> bool:
        """Takes note of a child that has ended, if it was the one that asked; whether the container is ready now."""
        if pid != self._asker:
            return False
        self._asker = None
        self._successes = self._successes + 1 if status == 0 else 0
        if self._successes >= self._probe.successes and not self.ready:
            self.ready, self._next = True, None
            return True
        return False

    def _ask(self) -> NoReturn:
        """In a process of its own, which ends with 0 if the container answers as it should."""
        try:
            linux.die_with_parent(signal.SIGKILL)
            if self._probe.kind == EXEC:
                self._execute()
            with socket.create_connection((self._probe.host or self._address, self._probe.port)) as connection:
                os._exit(0 if self._probe.kind != HTTP or _answers(connection, self._probe) else 1)
        finally:
            os._exit(1)

    def _execute(self) -> None:
        """Runs the probe's command where the container's own runs."""
        if not self._root:
            linux.join_namespaces(self._first, _NAMESPACES)
            if child := os.fork():
                os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.chdir(self._what.cwd if os.path.isdir(self._what.cwd) else "/")
        env = {**self._what.env, contract.ROOT_ENV: self._root} if self._root else self._what.env
        os.execvpe(self._probe.command[0], self._probe.command, env)


def _answers(connection: socket.socket, probe: Probe) -> bool:
    if probe.tls:
        import ssl  # rare, and a start-up cost

        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as a kubelet does
        connection = context.wrap_socket(connection)
    headers = {"Host": f"{probe.host}:{probe.port}", "Connection": "close", **probe.headers}
    lines = [f"GET {probe.path or '/'} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    said = b""
    while len(said) < _SAID and b"\r\n" not in said and (more := connection.recv(_SAID)):
        said += more
    words = said.split(None, 2)
    return len(words) > 1 and words[1].isdigit() and 200 <= int(words[1]) < 400
