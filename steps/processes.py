"""Several processes of one command in a pod: `python -m ffdl.steps.processes COUNT|ROLE,ROLE… PROGRAM ARGUMENT…`.

COUNT of them have ranks (`environment.of_process`), roles are those of MXNet. Exits with 0 once all have; the first
other exit code ends the rest, and is its own.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import IO

from .environment import inherited, of_process
from .exits import exit_code

GRACE = 10.0  # seconds that the rest get to end when one has failed
LAST_WORDS = 5.0  # seconds that what was written before the end is waited for
LINE_MOST = 1 << 16  # bytes that wait for the end of their line


class Processes:
    """The processes that were started, each leading a group of its own. What they write is passed on by lines."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._readers: list[threading.Thread] = []
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Raises OSError."""
        process = subprocess.Popen(
            command, env=environment, process_group=0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        self._groups.add(process.pid)
        self._readers.append(threading.Thread(target=_pass_on, args=(process.stdout,), daemon=True))
        self._readers[-1].start()
        threading.Thread(target=self._wait, args=(process,), daemon=True).start()

    def signal(self, number: int) -> None:
        """To all that are still there."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)

    def follow(self) -> int:
        """Waits for all; the exit code of the first that did not end with 0, else 0."""
        failed = 0
        running = len(self._groups)
        while running:
            try:
                status = self._ended.get(timeout=GRACE if failed else None)
            except queue.Empty:
                self.signal(signal.SIGKILL)
                continue
            running -= 1
            if status and not failed:
                failed = exit_code(status)
                self.signal(signal.SIGTERM)
        for reader in self._readers:
            reader.join(LAST_WORDS)  # what stays behind may hold its output open for ever
        return failed

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        self._ended.put(process.wait())


def _pass_on(reading: IO[bytes]) -> None:
    """What comes from `reading`, in whole lines: those of several processes would else be mixed."""
    rest = b""
    while data := os.read(reading.fileno(), LINE_MOST):
        rest += data
        whole = len(rest) if len(rest) > LINE_MOST else max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        _write(rest[:whole])
        rest = rest[whole:]
    _write(rest)


def _write(data: bytes) -> None:
    with _writing:
        while data:
            data = data[os.write(1, data) :]


_writing = threading.Lock()


def main(arguments: list[str]) -> int:
    """The program."""
    which, command = arguments[0], arguments[1:]
    base, processes = inherited(), Processes()
    signal.signal(signal.SIGTERM, lambda *_: processes.signal(signal.SIGTERM))
    try:
        if which.isdigit():
            for local in range(int(which)):
                processes.start(command, of_process(base, local, int(which)))
        else:
            for role in which.split(","):
                processes.start(command, {**base, "DMLC_ROLE": role})
    except OSError as error:
        print(f"ffdl: the command can't be started: {error}", file=sys.stderr)
        return 127  # the agent ends what has been started
    return processes.follow()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
