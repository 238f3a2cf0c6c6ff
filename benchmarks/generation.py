"""What it costs that one of four learners is killed: until all train again, and what is computed twice.

    python benchmarks/generation.py [--kills 7] [--interval 20] [--seed N]

One job of four peers on the local engine, of which a random one is killed with `kill -9`, again and again, at a random
step after a checkpoint. The time is that from the kill to the end of the first step that the last one of the four takes
in the next generation, less what the new process needs to start by itself (the interpreter, NumPy, to the call of
`learner.run`). Computed twice are the steps between the last checkpoint that all had and the kill. Exits with 1 where
the median of the times is above 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ffdl.engines.client import Client, Job
from ffdl.engines.local.engine import LocalEngine
from ffdl.workflows.job import TrainingJob

LEARNERS, BATCH = 4, 64
LIMIT = 2.0  # seconds
PATIENCE = 60.0  # seconds until something must have happened
TRAIN = f"""
import json, os, time

with open("/proc/self/stat") as stat:
    began = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
import numpy as np
from ffdl import learner

notes = open(os.environ["JOB_STATE_DIR"] + "/notes-" + os.environ["LEARNER_ID"], "a", buffering=1)
start = time.clock_gettime(time.CLOCK_BOOTTIME) - began  # seconds

def train(job):
    state = job.restore() or {{"step": 0, "w": np.zeros((256, 256), np.float32)}}
    rng, overlay = np.random.default_rng(job.rank), job.overlay()
    while True:
        x = rng.normal(size=({BATCH} // job.size, 256)).astype(np.float32)
        gradient = x.T @ (x @ state["w"] - x)
        overlay.all_reduce(gradient, "mean")
        state["w"] -= np.float32(1e-4) * gradient
        time.sleep(0.02)
        state["step"] += 1
        print(json.dumps([job.generation, state["step"], time.monotonic(), start]), file=notes)
        job.step(state["step"], state=state)

learner.run(train)
"""


class Note(NamedTuple):
    """What a learner writes after each step. Times in seconds, `at` of the machine's clock since it was started."""

    generation: int
    step: int
    at: float
    start: float


class Change(NamedTuple):
    """One generation change: seconds in all, seconds of them in the process's own start, steps computed twice."""

    seconds: float
    start: float
    twice: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=7)
    parser.add_argument("--interval", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    dice = random.Random(options.seed)
    os.environ.setdefault("FFDL_MACHINE", "cpus=4,memory=8GiB")
    with tempfile.TemporaryDirectory() as folder:
        home, code = Path(folder) / "home", Path(folder) / "code"
        code.mkdir()
        (code / "train.py").write_text(TRAIN)
        job = TrainingJob.from_arguments(
            name="generation",
            learners=LEARNERS,
            cpus=0.5,
            memory="400MB",
            distribution={"kind": "peer"},
            checkpoint={"interval": f"{options.interval} steps"},
            framework={"name": "numpy", "version": "2", "command": "exec python train.py"},
        )
        handle = Client(LocalEngine(home)).submit(job, code)
        try:
            notes = home / "jobs" / handle.id / "claims" / "job" / "job"
            changes = [change(handle, notes, options.interval, dice) for _ in range(options.kills)]
        finally:
            handle.delete(results=True)
    beyond = [each.seconds - each.start for each in changes]
    short = statistics.median(beyond) > LIMIT
    mark = f"   above {LIMIT:g}" if short else ""
    print(f"seed {options.seed}, {options.kills} kills; medians (least - most)")
    print(f"all four train again after   {shown([each.seconds for each in changes])} s")
    print(f"the process's own start      {shown([each.start for each in changes])} s")
    print(f"beyond that                  {shown(beyond)} s{mark}")
    twice = [each.twice for each in changes]
    print(f"steps computed twice         {shown(twice, 0)}, with a checkpoint each {options.interval}")
    print(f"samples computed twice       {shown([each * BATCH for each in twice], 0)}")
    return int(short)


def shown(values: list[float] | list[int], digits: int = 2) -> str:
    return f"{statistics.median(values):7.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def change(handle: Job, notes: Path, interval: int, dice: random.Random) -> Change:
    """Kills one of the learners, and waits until all are at work again."""
    wanted = max((note.step for note in last_of_all(notes)), default=0) + interval + dice.randrange(interval)
    until(lambda: len(found := last_of_all(notes)) == LEARNERS and min(note.step for note in found) >= wanted)
    victim = dice.randrange(LEARNERS) + 1
    pid = process_of(handle.id, victim)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    generation = max(note.generation for note in last_of_all(notes))
    until(lambda: min(note.generation for note in last_of_all(notes)) > generation)
    written = {number: read(notes, number) for number in range(1, LEARNERS + 1)}
    first = {number: next(n for n in found if n.generation > generation) for number, found in written.items()}
    reached = max(note.step for found in written.values() for note in found if note.generation == generation)
    seconds = max(note.at for note in first.values()) - killed
    return Change(seconds, first[victim].start, reached - first[victim].step + 1)


def read(notes: Path, number: int) -> list[Note]:
    path = notes / f"notes-{number}"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [Note(*json.loads(line)) for line in whole.splitlines()]


def last_of_all(notes: Path) -> list[Note]:
    return [found[-1] for number in range(1, LEARNERS + 1) if (found := read(notes, number))]


def process_of(job_id: str, number: int) -> int:
    """The training script of learner `number`, as this process sees it."""
    mark = f"LEARNER_ID={number}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"train.py" in command and f"TRAINING_ID={job_id}".encode() in environment and mark in environment:
            return int(process.name)
    raise SystemExit(f"learner {number} has no process")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the learners do not get on: see `ffdl logs`")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
