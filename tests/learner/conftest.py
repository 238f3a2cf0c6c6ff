"""A learner process and the agent's end of its line: a real socket, a real process."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ffdl
from ffdl import learner

WAIT = 60.0  # seconds; nothing here takes that long unless it hangs


class AgentEnd:
    """Accepts learners at a socket, tells each its world, and keeps what they say."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "agent.sock"
        self.world: dict[str, Any] = {
            "type": "world",
            "generation": 3,
            "rank": 0,
            "size": 1,
            "checkpoint_dir": str(folder / "checkpoints"),
            "interval": None,
            "steps": None,
            "keep": 3,
            "epoch": 2,
            "learners": 1,
            "index": 0,
        }
        self.door: socket.socket | None = None  # where others find who asks for it
        self.said: list[dict[str, Any]] = []
        self.longest = 0
        self.attentive = threading.Event()  # cleared: it says nothing more and reads nothing more
        self.attentive.set()
        self._news: queue.Queue[dict[str, Any]] = queue.Queue()
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        held = os.open(folder, os.O_RDONLY)
        self._listener.bind(f"/proc/self/fd/{held}/agent.sock")
        os.close(held)
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._listen, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _listen(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            for line in lines:
                self.longest = max(self.longest, len(line))
                message = json.loads(line)
                self.said.append(message)
                if message["type"] == "hello":
                    connection.sendall(json.dumps(self.world).encode() + b"\n")
                if message["type"] == "listener" and self.door is not None:
                    socket.send_fds(connection, [b'{"type": "listener"}\n'], [self.door.fileno()])
                self._news.put(message)
                self.attentive.wait(WAIT)
        self._news.put({"type": "end"})

    def expect(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Waits for the next message of that type with those fields."""
        while True:
            message = self._news.get(timeout=WAIT)
            if message["type"] == kind and fields.items() <= message.items():
                return message

    def halt(self) -> None:
        self.tell({"type": "halt"})

    def tell(self, message: dict[str, Any]) -> None:
        for connection in self._connections:
            with contextlib.suppress(BrokenPipeError):  # an earlier attempt's
                connection.sendall(json.dumps(message).encode() + b"\n")

    def go_away(self) -> None:
        """What a killed agent leaves: closed connections and no listener."""
        self.attentive.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):  # the learner was first
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def records(self) -> list[list[Any]]:
        """Every step told so far: [step, time, metrics]."""
        return [record for message in self.said if message["type"] == "step" for record in message["records"]]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentEnd]:
    end = AgentEnd(tmp_path / "run")
    yield end
    if end._listener.fileno() >= 0:
        end.go_away()


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script in a process of its own; what is left of it is killed afterwards."""
    processes: list[subprocess.Popen[str]] = []

    def begin(script: str, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        own = {name: value for name, value in os.environ.items() if name not in ("CHECKPOINT_DIR", "FFDL_AGENT_SOCKET")}
        command = options.pop("command", [sys.executable, "-W", "error", "-c", script])
        process = subprocess.Popen(
            [*command, *arguments],
            env=own | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | (env or {}),
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=options.pop("cwd", tmp_path),
            text=True,
            **options,
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with nothing of ours but the learner library, as it travels into a user's image."""
    folder = tmp_path / "library"
    shutil.copytree(
        Path(learner.__file__).parent, folder / "ffdl" / "learner", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(str(ffdl.__file__), folder / "ffdl")
    return folder
