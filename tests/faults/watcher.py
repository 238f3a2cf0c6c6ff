"""What a job does, seen from its node: processes and files, which are there whatever has become of the cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from ffdl.learner import contract
from tests.cluster import cgroups
from tests.cluster.place import Place

TICKS = os.sysconf("SC_CLK_TCK")
EXECUTOR = "argoexec"  # Argo's own, the first process of each of its containers
PROGRAMS = {  # role -> the words of a command line
    "script": ("python", "train.py"),
    "agent": ("-m", "ffdl.steps.agent"),
    "helper": ("-m", "ffdl.steps.checkpoint"),
    "download": ("-m", "ffdl.steps.download"),
    "store": ("-m", "ffdl.steps.store_results"),
}


def alive(pid: int) -> bool:
    """Whether there is such a process, a zombie not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def began(pid: int) -> float:
    """When a process began, in unix seconds; infinity if it is gone."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return float("inf")
    return time.time() - (float(Path("/proc/uptime").read_text().split()[0]) - ticks / TICKS)


class Watcher:
    """Looks at the job `job`, whose volume lies in the folder `volume`. All times are unix seconds."""

    def __init__(self, place: Place, job: str, volume: Path) -> None:
        self.place, self.job, self.volume = place, job, volume

    @property
    def _metrics(self) -> Path:
        return self.volume / "job" / "logs" / "learner-1" / contract.METRICS_FILE

    def steps(self) -> list[tuple[float, int]]:
        """Every step that the learner has told of, with its time, in the order told."""
        with contextlib.suppress(FileNotFoundError):
            return read_steps(self._metrics)
        return []

    def last_step(self) -> int:
        return max((step for _, step in self.steps()), default=0)

    def stepped(self, since: float) -> float | None:
        """When the first step after `since` was told."""
        return next((at for at, _ in self.steps() if at > since), None)

    def processes(self, program: str) -> dict[int, float]:
        """The job's living processes that run one of PROGRAMS, and when each began."""
        return {pid: began(pid) for pid in self._pids(program, first=False)}

    def first_processes(self, program: str) -> list[int]:
        """Those with id 1 in the containers around it."""
        return self._pids(program, first=True)

    def kill(self, program: str, first: bool = False) -> None:
        """`kill -9` of the one process that runs it, or of the first process of its container."""
        (pid,) = self._pids(program, first)
        os.kill(pid, signal.SIGKILL)

    def epoch(self) -> int:
        """The epoch of the helper that last opened its port; 0 before any has."""
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads((self.volume / "helper" / contract.ADDRESS_FILE).read_text())["epoch"])
        return 0

    def _pids(self, program: str, first: bool) -> list[int]:
        wanted, found = PROGRAMS[program], []
        for pid in cgroups.members(self.place.name):
            with contextlib.suppress(OSError):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                executor = os.path.basename(arguments[0]) == EXECUTOR
                if executor != first or not _contains(arguments, wanted) or not alive(pid):
                    continue
                if self.job.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found


def _contains(arguments: list[str], wanted: tuple[str, ...]) -> bool:
    names = [os.path.basename(argument) for argument in arguments]
    return any(tuple(names[at : at + len(wanted)]) == wanted for at in range(len(names)))


def read_steps(file: Path) -> list[tuple[float, int]]:
    """The steps in a metrics file; a line that is being written is left for the next time."""
    found = []
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            record = json.loads(line)
            found.append((record["meta"]["time"] / 1000, int(record["etimes"]["iteration"]["value"])))
    return found
