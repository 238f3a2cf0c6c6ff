"""Running `ship` beside the training: one at a time, what is asked for meanwhile next, failures again after a while."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from typing import IO

BACKOFF_FIRST, BACKOFF_MOST = 1.0, 60.0  # seconds
CHECKPOINTS, LOGS, FINAL = "--checkpoints", "--logs", "--final"


class Shipper:
    """`wanted` is what is still to be shipped; `failure` why the last run failed, empty after a good one."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self.failure = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._running: set[str] = set()
        self._backoff, self._not_before = BACKOFF_FIRST, 0.0

    @property
    def idle(self) -> bool:
        """Nothing is being shipped or to be shipped."""
        return self._process is None and not self.wanted

    def want(self, *what: str) -> None:
        self.wanted.update(what)

    def hurry(self) -> None:
        """Tries what failed again at once."""
        self._backoff, self._not_before = BACKOFF_FIRST, 0.0

    def poll(self, now: float) -> None:
        """Takes note of a run that has ended and starts the next one that is due. To be called often."""
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return
            self._ended(status, now)
        if self.wanted and now >= self._not_before:
            self._running, self.wanted = self.wanted, set()
            arguments = [FINAL] if FINAL in self._running else sorted(self._running)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the run has ended
            command = [sys.executable, "-m", "ffdl.steps.ship", *arguments]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self._errors)

    def finish(self, deadline: float, again: bool = True) -> bool:
        """Ships what is wanted, until `deadline` (of time.monotonic); without `again`, until a run fails.

        True when nothing is left.
        """
        self.hurry()
        self.failure = ""
        while not self.idle and time.monotonic() < deadline and (again or not self.failure):
            self.poll(time.monotonic())
            time.sleep(0.02)
        return self.idle

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.wanted |= self._running
            self._process = None

    def _ended(self, status: int, now: float) -> None:
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        self._errors.close()
        self._process = None
        if status == 0:
            self.failure, self._backoff = "", BACKOFF_FIRST
            return
        self.failure = lines[-1] if lines else f"shipping ended with exit code {status}"
        print(f"not shipped yet: {self.failure}", file=sys.stderr, flush=True)
        self.wanted |= self._running
        self._not_before = now + self._backoff
        self._backoff = min(2 * self._backoff, BACKOFF_MOST)
