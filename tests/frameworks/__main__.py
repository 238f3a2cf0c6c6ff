"""python -m tests.frameworks [jax] [tensorflow] [pytorch]

Installs each framework from the package index into an environment of its own (kept in ~/.cache/ffdl-frameworks; PyTorch
is that of /usr/bin/python3, Debian's python3-torch), trains a model with two learners of it on the local engine, and
prints a line for docs/together.md. Exits with 1 where a job fails or its learners end with different models.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ffdl.engines.client import Client
from ffdl.workflows.job import TrainingJob

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ffdl-frameworks"
PACKAGES = {"jax": "jax", "tensorflow": "tensorflow-cpu", "pytorch": ""}
DISTRIBUTION = {"jax": "jax", "tensorflow": "tensorflow-cpu", "pytorch": "torch"}
LIMIT = 300.0  # seconds


def python_if_there(framework: str) -> str | None:
    """The Python that has `framework`, where it was installed before."""
    python = CACHE / PACKAGES[framework] / "bin" / "python"
    return str(python) if python.exists() else None


def python_with(framework: str) -> str:
    package = PACKAGES[framework]
    if not package:
        return "/usr/bin/python3"
    folder = CACHE / package
    python = folder / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-m", "pip", "show", "-q", package]).returncode:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", package, "numpy"], check=True)
    return str(python)


def version_of(framework: str, python: str) -> str:
    ask = f"from importlib.metadata import version; print(version({DISTRIBUTION[framework]!r}))"
    return subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def trains(framework: str, python: str) -> str:
    """What went wrong, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        script = HERE / f"{framework}_two.py"
        code = Path(folder) / "code"
        code.mkdir()
        (code / "train.py").write_text(script.read_text())
        job = TrainingJob.from_arguments(
            name=framework,
            learners=2,
            cpus=0.5,
            memory="2GB",
            distribution={"kind": "peer"},
            framework={"name": "custom", "version": "debian:bookworm", "command": "python train.py"},
        )
        home = Path(folder) / "home"
        handle = Client(home=home, python=python).submit(job, code)
        status = handle.wait(LIMIT)
        models = {path.read_bytes() for path in home.rglob("model-*.npy")}
        said = [line.text for line in handle.logs()]
        handle.delete()
        if status.state != "COMPLETED":
            return "\n".join([status.reason, *said])
        return "" if len(models) == 1 else f"{len(models)} different models"


def main() -> int:
    failed = False
    for framework in sys.argv[1:] or PACKAGES:
        python = python_with(framework)
        wrong = trains(framework, python)
        result = wrong or "trains, with the same model at both learners"
        print(f"| {framework} | {version_of(framework, python)} | {datetime.date.today()} | {result} |", flush=True)
        failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
