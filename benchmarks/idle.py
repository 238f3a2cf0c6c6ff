"""How often the processes of an idle job wake up: its command sleeps, nothing happens (bound: 4 times a second each).

    python benchmarks/idle.py [--seconds 5]

Counts voluntary context switches: each is one return from waiting.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from ffdl.engines.client import Client
from ffdl.engines.local.engine import LocalEngine
from ffdl.workflows.job import TrainingJob

KINDS = {"ffdl.engines.local.runner": "", "ffdl.steps.checkpoint": "helper", "ffdl.steps.agent": "agent"}


def processes(job_id: str) -> dict[int, str]:
    """Our processes of the job: pid -> what it is."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
            if job_id not in command + (process / "environ").read_text():
                continue
            kind = next((kind for module, kind in KINDS.items() if module in command), None)
            if kind is not None:
                found[int(process.name)] = kind or (process / "comm").read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
    return found


def wakes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    framework = {"name": "custom", "version": "debian:bookworm", "command": "sleep 1000"}
    with tempfile.TemporaryDirectory() as home:
        engine = LocalEngine(Path(home))
        job = TrainingJob.from_arguments(name="idle", cpus=0.5, memory="64MB", halt_grace="1s", framework=framework)
        handle = Client(engine).submit(job)
        for status in engine.watch(handle.id, 30):
            if status.state == "PROCESSING":
                break
        time.sleep(2)  # until all that comes with the start is over
        before = {pid: (kind, wakes(pid)) for pid, kind in processes(handle.id).items()}
        time.sleep(options.seconds)
        for pid, (kind, count) in sorted(before.items(), key=lambda item: item[1][0]):
            print(f"{kind:12} {(wakes(pid) - count) / options.seconds:5.1f} wake-ups a second")
        handle.delete()


if __name__ == "__main__":
    main()
