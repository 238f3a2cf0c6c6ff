"""What the platform costs on one machine: start to end of an empty job, training through it against the bare script.

    python benchmarks/overhead.py [--pairs 3] [--epochs N]

Prints, as medians: seconds from submission to the end of a job whose command is `true` and from its first step to its
last; the ratio of training times, interleaved, both with one thread; memory (PSS) of runner and helper while training.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ffdl.engines.client import Client
from ffdl.engines.local.engine import LocalEngine
from ffdl.learner import contract
from ffdl.workflows.job import TrainingJob

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def empty_job(client: Client) -> tuple[float, float]:
    """(submission to end, first to last step) in seconds of a job that runs `true`."""
    job = TrainingJob.from_arguments(
        name="empty",
        cpus=1,
        memory="256MB",
        framework={"name": "custom", "version": "debian:bookworm", "command": "true"},
    )
    begun = time.monotonic()
    handle = client.submit(job)
    first = None
    for status in client.engine.watch(handle.id):
        if first is None and any(node.started for node in status.nodes):
            first = time.monotonic()
    ended = time.monotonic()
    handle.delete()
    return ended - begun, ended - (first or begun)


def through_platform(client: Client, epochs: int) -> tuple[float, float]:
    """(seconds from the first epoch's line to the last's, PSS of runner and helper in MiB)."""
    text = (DIGITS / "manifest.yml").read_text() + f"\nenv: {{EPOCHS: '{epochs}'}}\n"
    handle = client.submit(TrainingJob.from_manifest(text), DIGITS)
    most = 0.0
    for status in client.engine.watch(handle.id, 600):
        if status.step:
            most = max(most, memory(handle.id))
    stamps = [line.time for line in handle.logs() if line.text.startswith("epoch ") and line.time]
    handle.delete(results=True)
    return stamps[-1] - stamps[0], most


def bare(epochs: int) -> float:
    """Seconds from the first epoch's line to the last's, run by hand with the same number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **dict.fromkeys(contract.THREAD_ENVS, "1"), "RESULT_DIR": folder, "EPOCHS": str(epochs)}
        process = subprocess.Popen(
            [sys.executable, "digits.py"], cwd=DIGITS, env=env, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        stamps = [time.monotonic() for line in process.stdout if line.startswith("epoch ")]
        if process.wait():
            raise SystemExit("digits.py failed when run by hand")
    return stamps[-1] - stamps[0]


def memory(job_id: str) -> float:
    """Proportional set size of the job's runner and helper, in MiB."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            name = (process / "comm").read_text().strip()
            ours = (
                b"ffdl.engines.local.runner" in command and name == "ffdl-runner" and job_id.encode() in command
            ) or (b"ffdl.steps.checkpoint" in command and job_id.encode() in (process / "environ").read_bytes())
            if ours:
                rollup = (process / "smaps_rollup").read_text()
                total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        client = Client(LocalEngine(Path(home)))
        empties = [empty_job(client) for _ in range(5)]
        print(f"empty job: submission to end {statistics.median(e[0] for e in empties):.2f} s,", end=" ")
        print(f"first to last step {statistics.median(e[1] for e in empties):.2f} s (bound 3 s)")
        ratios, most = [], 0.0
        for _ in range(options.pairs):
            without = bare(options.epochs)
            with_platform, used = through_platform(client, options.epochs)
            ratios.append(with_platform / without)
            most = max(most, used)
            print(f"training: bare {without:.2f} s, through the platform {with_platform:.2f} s, ratio {ratios[-1]:.3f}")
        print(f"training ratio, median of {len(ratios)}: {statistics.median(ratios):.3f} (bound 1.02)")
        print(f"runner and helper: {most:.1f} MiB PSS (bound 64 MiB)")


if __name__ == "__main__":
    main()
