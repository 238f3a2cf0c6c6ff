"""A user at a terminal with an engine of their own: behaviours go through the `ffdl` command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from ffdl.engines.local.engine import LocalEngine
from ffdl.engines.status import JobStatus

JOB = Path(__file__).parent / "job"
FFDL = Path(sys.executable).with_name("ffdl")

ROLES = {  # what a process is called, what stands in its command line
    "runner": ("ffdl-runner:", "ffdl.engines.local.runner"),
    "supervisor": ("ffdl-pod:", "ffdl.engines.local.runner"),
    "learner": ("", "train.py"),
    "agent": ("", "ffdl.steps.agent"),
    "helper": ("", "ffdl.steps.checkpoint"),
    "download": ("", "ffdl.steps.download"),
    "store": ("", "ffdl.steps.store_results"),
}


class Blocks(yaml.SafeDumper):
    """Writes text of several lines as a literal block, as a user would: a command of several lines is a script."""


Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


class User:
    """Runs `ffdl` in a home of its own and looks at jobs through the engine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.env = {**os.environ, "FFDL_HOME": str(self.home), "FFDL_MACHINE": "cpus=4,memory=16GiB"}
        self.env.pop("FFDL_ENGINE", None)
        self.jobs: set[str] = set()  # that were submitted

    @property
    def engine(self) -> LocalEngine:
        return LocalEngine(self.home)

    def ffdl(self, *arguments: str, code: int | None = 0, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """One command; its exit code is checked unless `code` is None."""
        done = subprocess.run(
            [str(FFDL), *arguments], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=timeout
        )
        said = f"ffdl {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, f"{said}\nexit {done.returncode}, wanted {code}\n{self.story()}"
        assert "Traceback" not in done.stderr, said
        self.jobs.update(re.findall(r"^Model ID: (\S+)$", done.stdout, re.MULTILINE))
        return done

    def job(self, name: str = "job", **changes: object) -> Path:
        """A folder with the small job, its manifest changed by `changes` (keys of the manifest)."""
        folder = self.folder / name
        shutil.copytree(JOB, folder)
        manifest = {**yaml.safe_load((folder / "manifest.yml").read_text()), **changes}
        (folder / "manifest.yml").write_text(yaml.dump(manifest, Dumper=Blocks, allow_unicode=True))
        return folder

    def command(self, command: str, name: str = "job", **changes: object) -> Path:
        """A job that runs `command` in bash."""
        framework = {"name": "custom", "version": "debian:bookworm", "command": command}
        return self.job(name, framework=framework, **changes)

    def train(self, folder: Path, *arguments: str) -> str:
        """Submits; returns the job's id."""
        said = self.ffdl("train", str(folder / "manifest.yml"), *arguments).stdout.strip()
        assert said.startswith("Model ID: training-"), said
        return said.removeprefix("Model ID: ")

    def until(self, job: str, wanted: Callable[[JobStatus], bool], timeout: float = 60) -> JobStatus:
        """Waits for the first status for which `wanted` holds."""
        status = None
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for status in self.engine.watch(job, deadline - time.monotonic()):
                if wanted(status):
                    return status
            if status is not None and status.terminal:
                break
        raise AssertionError(f"{job} never came there: {status}\n{self.story()}")

    def step(self, job: str) -> int:
        """The last step that a learner has told its metrics of."""
        steps = [int(record["etimes"]["iteration"]["value"]) for record in self.engine.metrics(job)]
        return max(steps, default=0)

    def until_step(self, job: str, step: int, timeout: float = 60) -> None:
        self.wait_for(lambda: self.step(job) >= step, f"step {step}", timeout)

    def until_over(self, job: str, timeout: float = 120) -> JobStatus:
        return self.until(job, lambda status: status.terminal, timeout)

    def results(self, job: str) -> Path:
        """Where the engine's own store keeps a job's results."""
        return self.home / "claims" / "ffdl-results" / "dlaas-trained-models" / job

    def model(self, job: str) -> bytes:
        return (self.results(job) / "model.npy").read_bytes()

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
                said = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and any(mark in said for mark in marks):
                name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                mine[int(entry.name)] = f"{(entry / 'comm').read_text().strip()}: {name}"
        return mine

    def pids(self, role: str) -> list[int]:
        """Processes of one kind, see ROLES."""
        comm, argument = ROLES[role]
        return [pid for pid, said in self.processes().items() if said.startswith(comm) and argument in said]

    def kill(self, role: str) -> bool:
        """`kill -9` of one process of that kind, if there is one."""
        for pid in self.pids(role)[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
            return True
        return False

    def cgroups(self) -> list[str]:
        """Those of this user's jobs."""
        found = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if "ffdl-training-" in folder]
        return [folder for folder in found if any(job in folder for job in self.jobs)]

    def story(self) -> str:
        """What to look at when a test fails."""
        parts = []
        for path in sorted(self.home.glob("jobs/*/runner.log")) + sorted(self.home.glob("jobs/*/pods/*/*.log")):
            parts.append(f"== {path.relative_to(self.home)}\n{path.read_text(errors='replace')[-2000:]}")
        for path in self.home.glob("jobs/*/control/status.json"):
            nodes = json.loads(path.read_text()).get("nodes", {}).values()
            parts += [f"{n['name']} {n['type']} {n['phase']} {n.get('message', '')}" for n in nodes]
        return "\n".join(parts)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 30) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come\n{self.story()}"
            time.sleep(0.02)
