"""python -m tests.frameworks [NAME…]; without names, all: see CASES.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ffdl.engines.client import Client
from ffdl.workflows.job import TrainingJob

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ffdl-frameworks"
LIMIT = 300.0  # seconds


@dataclass(frozen=True)
class Case:
    """`packages` go into an environment of their own, none: the machine's Python. `named` tells the version."""

    named: str
    packages: tuple[str, ...]
    script: str
    command: str = "python train.py"
    distribution: dict[str, Any] = field(default_factory=lambda: {"kind": "peer"})
    completion: str = ""


def _servers(mode: str) -> dict[str, Any]:
    return {"kind": "parameter-server", "servers": 2, "cpus": 0.5, "mode": mode}


MPI: dict[str, Any] = {"script": "mpi_two.py", "command": "mpirun python train.py", "distribution": {"kind": "mpi"}}
CASES = {
    "jax": Case("jax", ("jax", "numpy"), "jax_two.py"),
    "tensorflow": Case("tensorflow-cpu", ("tensorflow-cpu", "numpy"), "tensorflow_two.py"),
    "tensorflow-ps": Case(
        "tensorflow-cpu",
        ("tensorflow-cpu", "numpy"),
        "tensorflow_servers.py",
        distribution=_servers("tensorflow"),
        completion="master",
    ),
    "mxnet": Case("mxnet", ("mxnet==1.9.1", "numpy==1.23.5"), "mxnet_servers.py", distribution=_servers("mxnet")),
    "pytorch": Case("torch", (), "pytorch_two.py"),
    "openmpi": Case("openmpi", ("openmpi", "mpi4py", "numpy"), **MPI),
    "mpich": Case("mpich", ("mpich", "mpi4py", "numpy"), **MPI),
    "intel-mpi": Case("impi-rt", ("impi-rt", "mpi4py", "numpy"), **MPI),
}


def python_if_there(framework: str) -> str | None:
    """The Python that has `framework`, where it was installed before."""
    python = CACHE / CASES[framework].packages[0] / "bin" / "python"
    return str(python) if python.exists() else None


def python_with(case: Case) -> str:
    if not case.packages:
        return "/usr/bin/python3"
    folder = CACHE / case.named
    python = folder / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-m", "pip", "show", "-q", case.named]).returncode:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *case.packages], check=True)
    return str(python)


def version_of(case: Case, python: str) -> str:
    ask = f"from importlib.metadata import version; print(version({case.named!r}))"
    return subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def trained(name: str, case: Case, python: str) -> tuple[bool, str]:
    """Whether all went well, and what is to be said."""
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        code.mkdir()
        (code / "train.py").write_text((HERE / case.script).read_text())
        job = TrainingJob.from_arguments(
            name=name,
            learners=2,
            cpus=0.5,
            memory="2GB",
            distribution=case.distribution,
            **({"completion": case.completion} if case.completion else {}),
            framework={"name": "custom", "version": "debian:bookworm", "command": case.command},
        )
        home = Path(folder) / "home"
        handle = Client(home=home, python=python).submit(job, code)
        status = handle.wait(LIMIT)
        found = [path.read_bytes() for path in home.rglob("model-*.npy")]
        said = [line.text for line in handle.logs()]
        handle.delete()
        if status.state != "COMPLETED":
            return False, "\n".join([status.reason, *said])
        if len(set(found)) != 1:
            return False, "\n".join([f"{len(set(found))} different models", *said])
        return True, "trains" + (", with the same model at both learners" if len(found) > 1 else "")


def main() -> int:
    failed = False
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        python = python_with(case)
        well, result = trained(name, case, python)
        print(f"| {name} | {version_of(case, python)} | {datetime.date.today()} | {result} |", flush=True)
        failed |= not well
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
