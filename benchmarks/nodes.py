"""What a node costs on one machine: from the request of a pod that runs `true` until its end is known.

    python benchmarks/nodes.py [--chain 200] [--dag 1000] [--runs 3]

Prints medians over the runs: milliseconds a node in a chain, where each waits for the one before, and in a DAG without
dependencies; and how often the status was written, against the changes of nodes that there were to be told.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ffdl.engines.local.engine import LocalEngine
from ffdl.engines.local.notify import Watcher
from ffdl.engines.local.runners import TERMINAL
from ffdl.learner import contract

LOOK = 0.005  # seconds
BOUND = 30.0  # milliseconds


def workflow(name: str, nodes: int, chained: bool) -> dict[str, Any]:
    tasks: list[dict[str, Any]] = [{"name": f"t{number}", "template": "leaf"} for number in range(nodes)]
    for before, task in zip(tasks, tasks[1:] if chained else [], strict=False):
        task["depends"] = before["name"]
    leaf = {"name": "leaf", "container": {"image": "debian", "command": ["true"]}}
    spec = {"entrypoint": "main", "templates": [{"name": "main", "dag": {"tasks": tasks}}, leaf]}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


class Writes(Watcher):
    """Counts how often the status in `folder` is replaced. The kernel keeps what has not been read yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.count = 0
        self.watch(folder, contract.CONTROL_STATUS)

    def _note(self, events: bytes) -> bool:
        self.count += events.count(contract.CONTROL_STATUS.encode() + b"\0")
        return super()._note(events)


def run(made: dict[str, Any]) -> tuple[float, int, int]:
    """(seconds from the first pod to the Workflow's end, writes of the status, changes of nodes at the least)."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        engine = LocalEngine(home)
        job_id = engine.submit_workflow(made)
        job = home / "jobs" / job_id
        writes = Writes(job / "control")
        while not any((job / "pods").iterdir()):
            time.sleep(LOOK)
        begun = time.monotonic()
        while not (job / "summary.json").exists():
            writes.wait(LOOK)
        took = time.monotonic() - begun
        writes.wait(0)
        writes.close()
        status = json.loads((job / "control" / contract.CONTROL_STATUS).read_bytes())
        if status["phase"] not in TERMINAL[:1]:
            raise SystemExit(f"{job_id} is {status['phase']}: {status.get('message')}")
        engine.delete(job_id)
    return took, writes.count, 2 * len(status["nodes"])  # each is made, and ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chain", type=int, default=200)
    parser.add_argument("--dag", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for name, nodes in (("chain", options.chain), ("dag", options.dag)):
        runs = [run(workflow(name, nodes, name == "chain")) for _ in range(options.runs if nodes else 0)]
        if not runs:
            continue
        each = [took * 1000 / nodes for took, _, _ in runs]
        written, changes = (statistics.median(values) for values in list(zip(*runs, strict=True))[1:])
        print(f"{name} of {nodes} nodes: {statistics.median(each):.1f} ms a node (bound {BOUND:.0f} ms), ", end="")
        print(f"of {len(runs)} runs {min(each):.1f} to {max(each):.1f}")
        print(f"{'':{len(name)}} status written {written:.0f} times for {changes:.0f} changes of nodes or more")


if __name__ == "__main__":
    main()
