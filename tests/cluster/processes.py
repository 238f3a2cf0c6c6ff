"""Processes that outlive the command that started them, known by id and start time: a recycled id is never killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BOOT = Path("/proc/sys/kernel/random/boot_id")


def started(pid: int) -> str | None:
    """When a process began, in a form to compare; None where there is no such process, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else f"{BOOT.read_text().strip()} {fields[19]}"


def wait_for(condition: Callable[[], object], what: str, within: float = 60, every: float = 0.05) -> None:
    """Return once the condition holds. TimeoutError after `within` seconds, saying what was waited for."""
    limit = time.monotonic() + within
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"{what}: not within {within:.0f} s")
        time.sleep(every)


@dataclass(frozen=True)
class Process:
    """A named process of the folder `run`; its id is in pids/, what it printed in logs/."""

    run: Path
    name: str

    @property
    def log(self) -> Path:
        return self.run / "logs" / f"{self.name}.log"

    @property
    def record(self) -> Path:
        return self.run / "pids" / self.name

    @property
    def known(self) -> dict[str, Any]:
        """What was noted when it was started: pid, started, command; empty if it never was."""
        try:
            return dict(json.loads(self.record.read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    @property
    def pid(self) -> int | None:
        """Its id while it runs."""
        known = self.known  # one that ended at once has no start time
        return known["pid"] if known.get("started") and started(known["pid"]) == known["started"] else None

    def start(self, command: Sequence[str], cgroup: Path) -> int:
        """Start it, unless it runs, in a session of its own and in a cgroup (its cgroup.procs file); returns its id."""
        if (running := self.pid) is not None:
            return running
        for file in (self.log, self.record):
            file.parent.mkdir(parents=True, exist_ok=True)
        enter = 'echo $$ > "$0" && echo $$ > "$1.new" && shift && exec "$@"'
        new = self.record.with_name(f"{self.name}.new")
        new.unlink(missing_ok=True)
        with self.log.open("a") as log:
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", enter, str(cgroup), str(self.record), *command],
                cwd="/",
                env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        wait_for(lambda: new.exists() and new.read_text().endswith("\n"), f"the start of {self.name}", every=0.005)
        pid = int(new.read_text())
        new.write_text(json.dumps({"pid": pid, "started": started(pid), "command": list(command)}))
        new.rename(self.record)
        return pid

    def kill(self, number: int = signal.SIGKILL, within: float = 20) -> None:
        """Send it a signal and wait until it is gone. Does nothing if it doesn't run."""
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        wait_for(lambda: self.pid != pid, f"the end of {self.name} (process {pid})", within, 0.01)
