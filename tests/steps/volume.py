"""A job's volume, ConfigMap and stores in a folder, and the steps that move bytes run on it as real processes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffdl.learner import checkpoint, contract, encoding
from tests.steps import s3

JOB_ID = "training-abcdefghij"


class Job:
    """Everything a pod of job JOB_ID sees, beneath `root` (FFDL_ROOT)."""

    def __init__(self, root: Path, **spec: Any) -> None:
        self.root, self.spec = root, spec
        self.environment: dict[str, str] = {"FFDL_RETRY_SECONDS": "20"}
        for folder in (contract.JOB_DIR, contract.JOURNAL_DIR, contract.CONFIG_DIR, contract.STORE_DIR):
            self.path(folder).mkdir(parents=True, exist_ok=True)
        for folder in (contract.DATA_ROOT, contract.RESULTS_ROOT, contract.HELPER_DIR, contract.STORE_SECRET_DIR):
            self.path(folder).mkdir(parents=True, exist_ok=True)
        self.write_spec()
        self.code({"train.py": b"print('hello')\n"})
        (self.path(contract.CONFIG_DIR) / contract.MANIFEST_FILE).write_text("name: digits\n")

    def write_spec(self, **changes: Any) -> None:
        self.spec |= changes
        values: dict[str, Any] = {
            "name": "digits", "command": "true", "framework": "custom", "framework_version": "x", "learners": 1,
            "cpus": 1.0, "gpus": 0.0, "memory": 1 << 30, "halt_grace": 1.0,
            "results": contract.Store("claim", "dlaas-trained-models"),
        }  # fmt: skip
        spec = contract.JobSpec(**(values | self.spec))
        (self.path(contract.CONFIG_DIR) / contract.JOB_FILE).write_text(spec.to_json())

    def path(self, absolute: str) -> Path:
        return Path(f"{self.root}{absolute}")

    def code(self, files: dict[str, bytes]) -> None:
        (self.path(contract.CONFIG_DIR) / contract.CODE_FILE).write_bytes(zipped(files))

    def credentials(self, user: str = s3.KEY, password: str = s3.SECRET) -> None:
        target = self.path(contract.STORE_SECRET_DIR) / contract.STORE_CREDENTIALS_FILE
        target.write_text(json.dumps({"user_name": user, "password": password}))

    @property
    def checkpoints(self) -> Path:
        return self.path(contract.CHECKPOINT_DIR)

    @property
    def logs(self) -> Path:
        return self.path(contract.LOG_DIR)

    @property
    def model(self) -> Path:
        return self.path(contract.MODEL_DIR)

    @property
    def result_dir(self) -> Path:
        return self.path(f"{contract.RESULTS_ROOT}/dlaas-trained-models/{JOB_ID}")

    @property
    def stored(self) -> Path:
        """The job's folder in the engine's own results store."""
        return self.path(f"{contract.STORE_DIR}/dlaas-trained-models/{JOB_ID}")

    @property
    def failures(self) -> dict[str, str]:
        folder = self.path(f"{contract.JOURNAL_DIR}/{contract.FAILURES_DIR}")
        return {found.stem: json.loads(found.read_text())["reason"] for found in folder.glob("*.json")}

    def result(self, name: str | bytes, data: bytes, mode: int = 0o644) -> Path:
        target = Path(os.fsdecode(os.fsencode(self.result_dir) + b"/" + os.fsencode(name)))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode)
        return target

    def checkpoint(
        self, step: int, size: int = 1000, where: str = "", fill: int | None = None, generation: int = 1
    ) -> checkpoint.Checkpoint:
        """Commits one as the learner library does."""
        import numpy

        state = {"step": step, "w": numpy.full(size, step if fill is None else fill, numpy.uint8)}
        taken = encoding.encode(state)
        folder = str(self.checkpoints / where)
        about = {"generation": generation, "epoch": 1, "world_size": 1}
        return checkpoint.write(folder, step, taken.document(), taken.contents, **about)

    def start(self, step: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "FFDL_", "ARGO_"))}
        variables |= self.environment | environment
        variables |= {contract.ROOT_ENV: str(self.root), contract.JOB_ID_ENV: JOB_ID}
        command = [sys.executable, "-W", "error", "-m", f"ffdl.steps.{step}", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True, errors="replace")

    def run(self, step: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a step to its end."""
        process = self.start(step, *arguments, **environment)
        try:
            out, errors = process.communicate(timeout=120)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess([step], process.returncode, out, errors)

    def good(self, step: str, *arguments: str, **environment: str) -> str:
        """Runs a step that must succeed. Returns what it said."""
        done = self.run(step, *arguments, **environment)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def red(self, step: str, *arguments: str, **environment: str) -> str:
        """Runs a step that must fail for good, with one line. Returns it."""
        done = self.run(step, *arguments, **environment)
        assert done.returncode == contract.EXIT_FINAL, (done.returncode, done.stdout, done.stderr)
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, done.stderr
        assert s3.SECRET not in done.stdout + done.stderr
        return lines[0]

    def killed(self, step: str, after: float, *arguments: str, **environment: str) -> bool:
        """Starts a step and kills it after so many seconds. Whether it was still running."""
        process = self.start(step, *arguments, **environment)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        return process.returncode == -signal.SIGKILL


def zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    """What is in a folder: the files by their name. What a kill left of an object's way there is none of them."""
    files = [found for found in folder.rglob("*") if found.is_file() and not found.name.startswith(".ffdl-put-")]
    return {str(found.relative_to(folder)): found.read_bytes() for found in files}


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


ODD_NAMES = [
    "a b/c d.txt", "ünïcödé/日本語.bin", "e\u0301 and é", "x" * 200, "-rf", "--help/-x", "p+q=r&s", "50%", "50%25",
    "%2F", "a#b", "a?b*c", "[x]{y}", "q\"t'", "back\\slash", ".hidden/..x", "trailing ", "~", "a;b|c<d>",
    "semi:colon", "`$(id)`", "\\u00e9",
]  # fmt: skip
