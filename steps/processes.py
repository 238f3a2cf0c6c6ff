"""Several processes of one command in a learner: `python -m ffdl.steps.processes COUNT PROGRAM ARGUMENT…`.

Exits with 0 once all have; the first other exit code ends the rest, and is its own.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading

from .environment import inherited, of_process
from .exits import exit_code

GRACE = 10.0  # seconds that the rest get to end when one has failed


class Processes:
    """The processes that were started, each leading a group of its own."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Raises OSError."""
        process = subprocess.Popen(command, env=environment, process_group=0)
        self._groups.add(process.pid)
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
        return failed

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        self._ended.put(process.wait())


def main(arguments: list[str]) -> int:
    """The program."""
    count, command = int(arguments[0]), arguments[1:]
    base, processes = inherited(), Processes()
    signal.signal(signal.SIGTERM, lambda *_: processes.signal(signal.SIGTERM))
    try:
        for local in range(count):
            processes.start(command, of_process(base, local, count))
    except OSError as error:
        print(f"ffdl: the command can't be started: {error}", file=sys.stderr)
        return 127  # the agent ends what has been started
    return processes.follow()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
