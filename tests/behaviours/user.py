"""A user at a terminal: behaviours go through the `ffdl` command, whatever engine is below it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from ffdl.engines.base import Engine
from ffdl.engines.status import JobStatus

JOB = Path(__file__).parent / "job"
FFDL = Path(sys.executable).with_name("ffdl")
SHORT = {"STEPS": "60"}
GATE = 'until [ -e "$JOB_STATE_DIR/gate" ]; do sleep 0.05; done'  # in a command: waits for `User.open_gate`
GATED = {"GATED": "1"}  # in the small job's env: before its last step it waits for that
PATIENCE = 120.0  # seconds that anything may take on a busy machine: what takes longer hangs


class Blocks(yaml.SafeDumper):
    """Writes text of several lines as a literal block, as a user would: a command of several lines is a script."""


Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


class User(ABC):
    """Runs `ffdl`, and looks at jobs through the engine; what that is made of is the subclass's.

    `folder` is theirs; `env` is what their commands see; `jobs` are the ids of those that they submitted.
    """

    engine_name: str
    image: str  # with bash
    soon = "15s"  # a start_timeout that leaves time to look
    pause = 0.02  # between two looks, in seconds
    pace = "0"  # PAUSE of the small job: where looking and killing take seconds, so does training

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("FFDL_")}
        self.env["FFDL_ENGINE"] = self.engine_name
        self.jobs: set[str] = set()

    # --- what differs between engines ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """The engine that the commands use, in this process."""

    @abstractmethod
    def results(self, job: str) -> Path:
        """A folder with what the job has stored in the engine's own store; it need not exist."""

    @abstractmethod
    def volume(self, job: str) -> Path:
        """The job's volume as it lies on this machine: `job`, `data`, `results`, `helper` and `journal` are in it."""

    @abstractmethod
    def secret(self, name: str, values: Mapping[str, str]) -> None:
        """Makes a Secret that `env_from_secret` may name."""

    @abstractmethod
    def processes(self) -> dict[int, str]:
        """Every living process of this user's jobs: its name and command line."""

    @abstractmethod
    def running(self) -> list[str]:
        """What of this user's jobs runs, in words."""

    @abstractmethod
    def held(self) -> list[str]:
        """What of the machine, or of the cluster, this user's jobs hold."""

    @abstractmethod
    def record(self, job: str) -> str:
        """All that the engine keeps of a job and may show, which is everything but its Secrets."""

    @abstractmethod
    def leftovers(self) -> list[str]:
        """What is left of jobs that were deleted."""

    @abstractmethod
    def pids(self, role: str) -> list[int]:
        """Processes of this user's jobs: `learner` (the script), `server` (a parameter server's), `agent`, `helper`,
        `download`, `store`, and `supervisor`, which stands around any of these."""

    @abstractmethod
    def story(self) -> str:
        """What to look at when a test fails."""

    # --- what they do -------------------------------------------------------------------------------------------------

    def ffdl(
        self, *arguments: str, code: int | None = 0, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
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
        if self.pace != "0":
            manifest["env"] = {"PAUSE": self.pace, **manifest.get("env", {})}
        (folder / "manifest.yml").write_text(yaml.dump(manifest, Dumper=Blocks, allow_unicode=True))
        return folder

    def command(self, command: str, name: str = "job", **changes: object) -> Path:
        """A job that runs `command` in bash."""
        framework = {"name": "custom", "version": self.image, "command": command}
        return self.job(name, framework=framework, **changes)

    def script(self, text: str, name: str = "job", **changes: object) -> Path:
        """A job that runs `text` with Python."""
        framework = {"name": "numpy", "version": "2", "command": "python script.py"}
        folder = self.job(name, framework=framework, **changes)
        (folder / "script.py").write_text(textwrap.dedent(text))
        return folder

    def train(self, folder: Path, *arguments: str) -> str:
        """Submits the manifest in a folder, or of another name; returns the job's id."""
        manifest = folder / "manifest.yml" if folder.is_dir() else folder
        said = self.ffdl("train", str(manifest), *arguments).stdout.strip()
        assert said.startswith("Model ID: training-"), said
        return said.removeprefix("Model ID: ")

    def open_gate(self, job: str) -> None:
        """Lets a command go on that waits at GATE, and the small job if it is GATED."""
        (self.volume(job) / "job" / "gate").touch()

    def kill(self, role: str) -> bool:
        """`kill -9` of one process of that kind, if there is one."""
        for pid in self.pids(role)[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
            return True
        return False

    # --- what they see ------------------------------------------------------------------------------------------------

    def until(self, job: str, wanted: Callable[[JobStatus], bool], timeout: float = PATIENCE) -> JobStatus:
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

    def until_step(self, job: str, step: int, timeout: float = PATIENCE) -> None:
        self.wait_for(lambda: self.step(job) >= step, f"step {step}", timeout)

    def until_over(self, job: str, timeout: float = 180) -> JobStatus:
        return self.until(job, lambda status: status.terminal, timeout)

    def failed(self, job: str, timeout: float = 180) -> str:
        """The one line that says why the job failed, once it has."""
        status = self.until_over(job, timeout)
        assert status.state == "FAILED", self.story()
        assert status.reason
        assert "\n" not in status.reason
        self.ffdl("wait", job, code=1)
        return status.reason

    def until_at_rest(self) -> None:
        """Waits until no process is left and nothing is held: whoever tells of a job's end has yet to end itself."""
        self.wait_for(lambda: not self.running(), "the end of all processes")
        self.wait_for(lambda: not self.held(), "nothing of the machine held")

    def model(self, job: str) -> bytes:
        return (self.results(job) / "model.npy").read_bytes()

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come\n{self.story()}"
            time.sleep(self.pause)
