"""What large Workflows cost their runner: a DAG of 1,000 nodes, a loop of 10,000 items of which 20 run at once.

    python benchmarks/workflows.py [--nodes 1000] [--items 10000]

Prints, for each, the processor time of the runner a node, its most memory (VmHWM) against the bound,
and the time from the first to the last.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ffdl.engines.local.engine import LocalEngine
from ffdl.engines.local.runners import TERMINAL

LAYER = 10  # tasks, each of which waits for all of the layer before
LOOK = 0.2  # seconds
BOUND = 200  # MiB
CLOCK = os.sysconf("SC_CLK_TCK")


def dag(nodes: int) -> dict[str, Any]:
    tasks: list[dict[str, Any]] = []
    for number in range(nodes):
        task = {"name": f"t{number}", "template": "leaf"}
        first = number // LAYER * LAYER
        if first:
            task["depends"] = " && ".join(f"t{other}" for other in range(first - LAYER, first))
        tasks.append(task)
    return workflow("dag", {"tasks": tasks})


def loop(items: int) -> dict[str, Any]:
    task = {"name": "t", "template": "leaf", "withSequence": {"count": items}}
    return workflow("loop", {"tasks": [task]}, parallelism=20)


def workflow(name: str, body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    leaf = {"name": "leaf", "container": {"image": "debian", "command": ["true"]}}
    spec = {"entrypoint": "main", "templates": [{"name": "main", "dag": body}, leaf], **spec}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


def runner(home: Path) -> int | None:
    """The process that drives the one job of `home`."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"ffdl.engines.local.runner" in words and str(home).encode() in words:
                return int(entry)
    return None


def cost(process: int) -> tuple[float, int]:
    """Seconds of processor time and most MiB of memory so far. Raises OSError when it is gone."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return (int(fields[11]) + int(fields[12])) / CLOCK, int(status["VmHWM"].split()[0]) // 1024


def run(made: dict[str, Any], nodes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        engine = LocalEngine(home)
        begun = time.monotonic()
        job_id = engine.submit_workflow(made)
        process, spent, memory = None, 0.0, 0
        while (phase := engine.workflow(job_id)["status"].get("phase")) not in TERMINAL:
            process = process or runner(home)
            with contextlib.suppress(OSError, KeyError):  # it has just ended
                spent, memory = cost(process) if process else (spent, memory)
            time.sleep(LOOK)
        took = time.monotonic() - begun
        engine.delete(job_id)
    name = made["metadata"]["name"]
    print(f"{name} of {nodes} nodes: {phase}, {took:.0f} s in all, {took * 1000 / nodes:.0f} ms a node")
    print(f"{'':{len(name)}} runner {spent * 1000 / nodes:.1f} ms a node, {memory} MiB at most (bound {BOUND} MiB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--items", type=int, default=10_000)
    options = parser.parse_args()
    for made, nodes in ((dag(options.nodes), options.nodes), (loop(options.items), options.items)):
        if nodes:
            run(made, nodes)


if __name__ == "__main__":
    main()
