"""Fifty one-second jobs submitted at once: all complete; how long it takes against the machine's own bound.

python benchmarks/many_jobs.py [--jobs 50]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from ffdl.engines.client import Client
from ffdl.engines.local.engine import LocalEngine
from ffdl.workflows.job import TrainingJob


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50)
    options = parser.parse_args()
    framework = {"name": "custom", "version": "debian:bookworm", "command": "sleep 1"}
    with tempfile.TemporaryDirectory() as home:
        engine = LocalEngine(Path(home))
        side_by_side = int(engine.machine.cpus)
        job = TrainingJob.from_arguments(name="one second", cpus=1, memory="64MB", framework=framework)
        begun = time.monotonic()
        handles = [Client(engine).submit(job) for _ in range(options.jobs)]
        submitted = time.monotonic() - begun
        states = [handle.wait(900).state for handle in handles]
        took = time.monotonic() - begun
        for handle in handles:
            handle.delete(results=True)
    ideal = options.jobs / side_by_side
    print(
        f"{states.count('COMPLETED')} of {options.jobs} completed; submitted in {submitted:.1f} s, done in {took:.1f} s"
    )
    print(f"{side_by_side} run side by side, each for 1 s: ratio to {ideal:.0f} s of bare commands {took / ideal:.2f}")


if __name__ == "__main__":
    main()
