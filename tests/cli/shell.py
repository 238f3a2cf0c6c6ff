"""A user's shell for the tests of the command: `ffdl` as a process of its own, at a terminal or not."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ffdl.engines.local.state import Home, Job, write_json
from ffdl.learner import contract

PATIENCE = 120.0  # seconds that a command may take on a busy machine: what takes longer hangs
FFDL = str(Path(sys.executable).with_name("ffdl"))


class Shell:
    """Runs `ffdl` in a folder and with a home of its own; holds no job unless a test makes one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.env = kept | {"HOME": str(folder), "FFDL_HOME": str(self.home), "TERM": "xterm-256color"}
        self.env |= {"FFDL_MACHINE": "cpus=4,memory=16GiB"}

    def ffdl(self, *arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """One command, its output piped; its exit code must be `code`, and no error may show a traceback."""
        done = subprocess.run(
            [FFDL, *arguments], env=self.env | env, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE
        )
        said = f"ffdl {' '.join(arguments)}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, said
        assert "Traceback" not in done.stderr, said
        return done

    def fails(self, *arguments: str, code: int = 2, **env: str) -> str:
        """The one line of error that a command ends with; nothing may be on stdout."""
        done = self.ffdl(*arguments, code=code, **env)
        assert done.stdout == ""
        line = done.stderr.rstrip("\n").rpartition("\n")[2]
        assert line.startswith("Error: "), done.stderr
        return line.removeprefix("Error: ")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on; in a session of its own, as a terminal's foreground process is."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([FFDL, *arguments], env=self.env, cwd=self.folder, start_new_session=True, **pipes)

    def terminal(self, *arguments: str, keys: str = "", columns: int = 80, **env: str) -> tuple[str, int]:
        """What a terminal shows of a command that gets `keys` typed, and its exit code."""
        with Terminal(self, *arguments, columns=columns, **env) as screen:
            if keys:
                screen.until("?")
                screen.type(keys)
            return screen.end()

    def job(self, job_id: str, *, ago: float = 0.0, state: str = "PROCESSING", **values: Any) -> str:
        """A job's record, as the engine keeps it, without anything that runs. A finished one ended as it began."""
        then = time.time() - ago
        name = values.pop("name", "digits")
        summary = {"framework": "numpy", "version": "2.1", "learners": 1, "gpus": 0, "cpus": 1, "memory": 2**30}
        summary |= values.pop("summary", {})
        annotations = {
            contract.ANNOTATION_NAME: json.dumps(name),
            contract.ANNOTATION_SUMMARY: json.dumps(summary),
            contract.ANNOTATION_RELEASED: "true",
        }
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(then))
        metadata = {"name": job_id, "creationTimestamp": stamp, "annotations": annotations}
        node = {"type": "Pod", "name": "n", "templateName": "learner", "phase": "Running", "startedAt": stamp}
        statuses: dict[str, dict[str, Any]] = {
            "PROCESSING": {"phase": "Running", "nodes": {"n": node}},
            "QUEUED": {"phase": "Pending", "message": "queued: needs 4 CPUs, 1 is free"},
            "HALTED": {"phase": "Running", "nodes": {"n": node | {"phase": "Failed", "outputs": {"exitCode": "75"}}}},
            "COMPLETED": {"phase": "Succeeded", "finishedAt": stamp},
            "FAILED": {"phase": "Failed", "finishedAt": stamp, "nodes": {"n": node | _FAILED}},
        }

        def fill(job: Job) -> None:
            spec = {"suspend": state == "HALTED"}
            write_json(job.control / contract.CONTROL_WORKFLOW, {"metadata": metadata, "spec": spec})
            write_json(job.control / contract.CONTROL_STATUS, statuses[state])
            if values:
                write_json(job.control / contract.CONTROL_REPORT, {"time": time.time(), **values})

        Home(self.home).create(job_id, fill)
        (self.home / "active" / job_id).unlink()
        return job_id


_FAILED = {"phase": "Failed", "message": "main: Error (exit code 3)", "outputs": {"exitCode": "3"}}


class Terminal:
    """A command at a terminal."""

    def __init__(self, shell: Shell, *arguments: str, columns: int = 80, **env: str) -> None:
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            os.chdir(shell.folder)
            os.execve(FFDL, [FFDL, *arguments], shell.env | {"COLUMNS": str(columns), "LINES": "24"} | env)
        self.text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._screen)

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def until(self, words: str, timeout: float = PATIENCE) -> str:
        """Reads until `words` are on the screen."""
        deadline = time.monotonic() + timeout
        while words not in self.text:
            assert time.monotonic() < deadline, f"{words!r} did not come: {self.text}"
            assert self._read(deadline), f"it ended before {words!r}: {self.text}"
        return self.text

    def end(self, timeout: float = PATIENCE) -> tuple[str, int]:
        """All that was shown, and the exit code."""
        deadline = time.monotonic() + timeout
        while self._read(deadline):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"it had not ended after {timeout} s: {self.text}")
        return self.text.replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, deadline: float) -> bool:
        if not select.select([self._screen], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return True
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
