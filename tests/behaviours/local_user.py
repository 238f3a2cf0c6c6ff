"""A user of the embedded engine, with a home of their own: jobs are processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ffdl.engines.local.engine import LocalEngine
from tests.behaviours.user import User

ROLES = {  # what a process is called, what stands in its command line
    "runner": ("ffdl-runner:", "ffdl.engines.local.runner"),
    "supervisor": ("ffdl-pod:", "ffdl.engines.local.runner"),
    "init": ("ffdl-init:", "ffdl.engines.local.runner"),
    "learner": ("", "train.py"),
    "server": ("", "ffdl.learner.serving"),
    "agent": ("", "ffdl.steps.agent"),
    "helper": ("", "ffdl.steps.checkpoint"),
    "download": ("", "ffdl.steps.download"),
    "store": ("", "ffdl.steps.store_results"),
}


class LocalUser(User):
    """`home` is FFDL_HOME."""

    engine_name = "local"
    image = "debian:bookworm"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home = folder / "home"
        self.env |= {"FFDL_HOME": str(self.home), "FFDL_MACHINE": "cpus=4,memory=16GiB"}
        del self.env["FFDL_ENGINE"]  # it is what a user gets who chooses nothing

    @property
    def engine(self) -> LocalEngine:
        os.environ["FFDL_MACHINE"] = self.env["FFDL_MACHINE"]  # who looks at a job may start its runner, too
        return LocalEngine(self.home)

    def results(self, job: str) -> Path:
        return self.home / "claims" / "ffdl-results" / "dlaas-trained-models" / job

    def volume(self, job: str) -> Path:
        return self.home / "jobs" / job / "claims" / "job"

    def secret(self, name: str, values: Mapping[str, str]) -> None:
        folder = self.home / "secrets" / name
        folder.mkdir(parents=True)
        for key, value in values.items():
            (folder / key).write_text(value)

    def processes(self) -> dict[int, str]:
        """Every living process that belongs to this home, by its environment or command line."""
        mine = {}
        marks = [os.fsencode(self.home), *map(os.fsencode, self.jobs)]
        with contextlib.suppress(FileNotFoundError):
            marks += map(os.fsencode, os.listdir(self.home / "jobs"))
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                said = (entry / "environ").read_bytes() + command
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                comm = (entry / "comm").read_text().strip()
            except OSError:
                continue
            if state != "Z" and any(mark in said for mark in marks):
                name = command.replace(b"\0", b" ").decode(errors="replace")
                mine[int(entry.name)] = f"{comm}: {name}"
        return mine

    def running(self) -> list[str]:
        return list(self.processes().values())

    def held(self) -> list[str]:
        return [lease.name for lease in (self.home / "leases").glob("*.json")]

    def pids(self, role: str) -> list[int]:
        comm, argument = ROLES[role]
        return [pid for pid, said in self.processes().items() if said.startswith(comm) and argument in said]

    def record(self, job: str) -> str:
        folder = self.home / "jobs" / job
        shown = (path for path in folder.rglob("*") if folder / "objects" / "secrets" not in path.parents)
        return "".join(path.read_bytes().decode(errors="replace") for path in shown if path.is_file())

    def cgroups(self) -> list[str]:
        """Those of this user's jobs."""
        found = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if "ffdl-training-" in folder]
        return [folder for folder in found if any(job in folder for job in self.jobs)]

    def leftovers(self) -> list[str]:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        left = [f"mount {line}" for line in mounts if str(self.folder) in line] + self.cgroups()
        for folder in ("leases", "jobs", "active", "trash"):
            left += [str(entry) for entry in (self.home / folder).iterdir() if entry.name != "lock"]
        return left + self.running()

    def story(self) -> str:
        parts = []
        for path in sorted(self.home.glob("jobs/*/runner.log")) + sorted(self.home.glob("jobs/*/pods/*/*.log")):
            parts.append(f"== {path.relative_to(self.home)}\n{path.read_text(errors='replace')[-2000:]}")
        for path in self.home.glob("jobs/*/control/status.json"):
            nodes = json.loads(path.read_text()).get("nodes", {}).values()
            parts += [f"{n['name']} {n['type']} {n['phase']} {n.get('message', '')}" for n in nodes]
        return "\n".join(parts)
