"""How long the command takes, against `python -c "import click"`: help of every verb, and a list of 1,010 jobs.

    python benchmarks/cli.py [rounds]

Medians of `rounds` (default 15) interleaved runs. Exit code 1 if a ratio is above its bound.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ffdl.cli.app import VERBS
from ffdl.engines.local.state import Home, Job, write_json
from ffdl.engines.nodes import NodeStatus
from ffdl.engines.status import COMPLETED, JobStatus
from ffdl.learner import contract

HELP_BOUND, LIST_BOUND = 2.0, 4.0
FINISHED, RUNNING = 1000, 10
STAMP = "2026-01-02T03:04:05Z"


def add_job(home: Home, number: int, running: bool) -> None:
    """A job's record as the engine keeps it."""
    job_id = f"training-{'r' if running else 'f'}{number:09}"
    steps = ("download", "checkpoint", "learner-1", "store-results")

    def fill(job: Job) -> None:
        annotations = {contract.ANNOTATION_NAME: '"digits"', contract.ANNOTATION_RELEASED: "true"}
        metadata = {"name": job_id, "creationTimestamp": STAMP, "annotations": annotations}
        write_json(job.control / contract.CONTROL_WORKFLOW, {"metadata": metadata, "spec": {"entrypoint": "training"}})
        nodes = {
            name: {"type": "Pod", "name": name, "templateName": name, "phase": "Running", "startedAt": STAMP}
            for name in ("checkpoint", "learner")
        }
        write_json(job.control / contract.CONTROL_STATUS, {"phase": "Running", "startedAt": STAMP, "nodes": nodes})
        if not running:
            now = time.time()
            ended = tuple(NodeStatus(name, "Succeeded", 1, "", 0, now, now) for name in steps)
            times = {"submitted": now, "started": now, "finished": now}
            status = JobStatus(job_id, COMPLETED, "digits", "numpy", "2.1", progress=1.0, nodes=ended, **times)
            write_json(job.path / "summary.json", status.to_dict())

    home.create(job_id, fill)
    (home.path / "active" / job_id).unlink()


def seconds(command: list[str], env: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main(rounds: int) -> int:
    ffdl = str(Path(sys.executable).with_name("ffdl"))
    commands = {
        "import click": [sys.executable, "-c", "import click"],
        "import ffdl": [sys.executable, "-c", "import ffdl"],
    }
    commands |= {f"{verb} --help": [ffdl, verb, "--help"] for verb in VERBS}
    commands |= {
        "--help": [ffdl, "--help"],
        "list": [ffdl, "list"],
        "list -a -o json": [ffdl, "list", "-a", "-o", "json"],
    }
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        for number in range(FINISHED + RUNNING):
            add_job(home, number, running=number >= FINISHED)
        env = {**os.environ, "FFDL_HOME": folder}
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                taken[name].append(seconds(command, env))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    base, failed = medians["import click"], False
    for name, median in medians.items():
        bound = (
            1.0 if name == "import ffdl" else LIST_BOUND if name.startswith("list -a") or name == "list" else HELP_BOUND
        )
        over = name != "import click" and median > bound * base
        failed |= over
        print(f"{name:<20} {median * 1000:7.1f} ms {median / base:6.2f}x" + (f"  above {bound:g}x" if over else ""))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
