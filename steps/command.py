"""The user's command: started in a session of its own, its output read, its whole family ended with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping

from .family import children, descendants, processes

_ARGUMENT_MOST = 120_000  # bytes; the kernel takes 128 KiB for one argument
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_READ_AT_ONCE = 1 << 16


class Command:
    """A running command. `sink` is given what it writes (standard output and errors, one stream) by `pump`."""

    def __init__(
        self, text: str, environment: Mapping[str, str], cwd: str, scratch: str, sink: Callable[[bytes], None]
    ) -> None:
        """Starts `text` by `bash -c`, or `sh -c` where there is no bash. Raises OSError when that can't be."""
        self.shell = find_shell(environment)
        # what daemonises becomes our child, not that of some init beyond our reach
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self.started = time.monotonic()
        self._sink = sink
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [self.shell, *_arguments(text, scratch)],
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        self.output: int | None = reading

    def pump(self) -> bool:
        """Passes on some of what was written. False once there is no more to come."""
        if self.output is None:
            return False
        try:
            data = os.read(self.output, _READ_AT_ONCE)
        except BlockingIOError:
            return True
        if data:
            self._sink(data)
        return bool(data)

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        return self._process.poll()

    def stands_still(self) -> bool:
        """Whether someone has stopped it (SIGSTOP), or a part of it."""
        among = processes()
        return any(among[pid].state == b"T" for pid in descendants(self._process.pid, among) if pid in among)

    def signal(self, number: signal.Signals) -> None:
        """To the command's whole group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def finish(self) -> None:
        """Ends whatever the command left running, reads what is left to read. For a command that has ended."""
        self.signal(signal.SIGKILL)
        until = time.monotonic() + 5.0
        while (orphans := children()) and time.monotonic() < until:
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.005)
        if self.output is not None:
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self.output, _READ_AT_ONCE):
                    self._sink(data)
            os.close(self.output)
            self.output = None


def find_shell(environment: Mapping[str, str]) -> str:
    """bash, which FfDL's images had, else `sh`."""
    path = environment.get("PATH") or os.defpath
    return shutil.which("bash", path=path) or shutil.which("sh", path=path) or "/bin/sh"


def _arguments(text: str, scratch: str) -> list[str]:
    if len(os.fsencode(text)) < _ARGUMENT_MOST:
        return ["-c", text]
    script = os.path.join(scratch, "command.sh")
    with open(script, "wb") as stream:
        stream.write(os.fsencode(text))
    return [script]
