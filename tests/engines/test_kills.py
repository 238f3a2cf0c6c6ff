"""`kill -9` of a runner and of pods' supervisors, at random, in a Workflow of a hundred nodes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from ffdl.engines.local import processes
from ffdl.engines.local.engine import LocalEngine

NODES, KILLS = 100, 20


def victims(home: Path) -> list[int]:
    """The runner and the supervisors of this home: a supervisor is a fork of the runner, so is what it forks."""
    found = []
    for process in processes.everything():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            name = Path(f"/proc/{process.pid}/comm").read_text().strip()
            if process.alive and os.fsencode(home) in words and name in ("ffdl-runner", "ffdl-pod"):
                found.append(process.pid)
    return found


@pytest.mark.timeout(600)
def test_twenty_kills_lose_nothing(engine: LocalEngine, tmp_path: Path) -> None:
    """Each node ends well, by as many attempts as it takes; no attempt's command ever runs twice."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    runs = tmp_path / "runs"
    runs.mkdir()
    tasks = [
        {"name": f"t{n}", "template": "leaf", **({"depends": f"t{n - 10}.Succeeded"} if n >= 10 else {})}
        for n in range(NODES)
    ]
    command = 'echo x >> "$RUNS/$HOSTNAME"; sleep 0.05'
    leaf = {
        "name": "leaf",
        "retryStrategy": {"limit": 100, "retryPolicy": "Always"},
        "container": {
            "image": "x",
            "command": ["sh", "-c", command],
            "env": [{"name": "RUNS", "value": "/runs"}],
            "volumeMounts": [{"name": "runs", "mountPath": "/runs"}],
        },
    }
    if os.environ.get("FFDL_ISOLATION") == "none":
        leaf["container"]["env"][0]["value"] = str(runs)
    spec = {
        "entrypoint": "main",
        "volumes": [{"name": "runs", "hostPath": {"path": str(runs)}}],
        "templates": [{"name": "main", "dag": {"tasks": tasks, "failFast": False}}, leaf],
    }
    name = engine.submit_workflow(
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "kills"}, "spec": spec}
    )
    home, kills = tmp_path / "home", 0
    updates = engine.watch(name, 500)
    next(updates)
    while kills < KILLS and not engine.status(name).terminal:
        time.sleep(chance.uniform(0.01, 0.15))  # at any moment
        with contextlib.suppress(ProcessLookupError, IndexError):  # none there, or it has just ended
            os.kill(chance.choice(victims(home)), signal.SIGKILL)
            kills += 1
        LocalEngine(home)  # any command takes over
    assert list(updates)[-1].state == "COMPLETED"
    assert kills >= KILLS // 2
    nodes = engine.workflow(name)["status"]["nodes"].values()
    assert Counter(n["phase"] for n in nodes if n["type"] == "Retry") == {"Succeeded": NODES}
    assert len([n for n in nodes if n["type"] == "Pod" and n["phase"] == "Succeeded"]) == NODES
    said = [path.read_text() for path in runs.iterdir()]
    assert set(said) <= {"x\n", ""}  # nothing where the kill came between opening the file and writing to it
    assert said.count("x\n") >= NODES
