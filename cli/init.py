"""`ffdl init`."""

from __future__ import annotations

from pathlib import Path

import click

from .settings import Verb, tell

MANIFEST = """\
name: {name}
description: A small network that learns to tell two spirals apart
learners: 1
cpus: 1
memory: 512MB
framework:
  name: custom
  version: python:3.12-slim        # a cluster runs the command in this image; this machine in your Python
  command: python3 train.py
checkpoint:
  interval: 5s
"""
TRAIN = '''\
"""Trains a network of 2-24-1 neurons on two spirals, in plain Python. Takes about ten seconds."""

import json
import math
import os
import random

from ffdl import learner

STEPS, HIDDEN, RATE = 4000, 24, 0.05


def spirals(count=96):
    """Points (x, y) with their label: +1 on one spiral, -1 on the other."""
    for i in range(count):
        angle, radius = i * 3.0 * math.pi / count, (i + 4) / count
        yield radius * math.cos(angle), radius * math.sin(angle), 1.0
        yield -radius * math.cos(angle), -radius * math.sin(angle), -1.0


def initial_state():
    chance = random.Random(1)
    return {
        "step": 0,
        "first": [[chance.gauss(0, 2) for _ in range(3)] for _ in range(HIDDEN)],
        "second": [chance.gauss(0, 0.3) for _ in range(HIDDEN)],
    }


def train_one(state, points):
    """One pass over the points; returns the mean loss and the share of points that were told right."""
    loss = right = 0.0
    for x, y, label in points:
        hidden = [math.tanh(a * x + b * y + c) for a, b, c in state["first"]]
        output = math.tanh(sum(w * h for w, h in zip(state["second"], hidden)))
        error = output - label
        loss += error * error
        right += (output > 0) == (label > 0)
        slope = RATE * error * (1 - output * output)
        for j, h in enumerate(hidden):
            back = slope * state["second"][j] * (1 - h * h)
            state["second"][j] -= slope * h
            weights = state["first"][j]
            weights[0] -= back * x
            weights[1] -= back * y
            weights[2] -= back
    return loss / len(points), right / len(points)


def main():
    points = list(spirals())
    with learner.session() as job:
        state = job.restore() or initial_state()
        print(f"begins at step {state['step']}")
        accuracy = 0.0
        while state["step"] < STEPS:
            loss, accuracy = train_one(state, points)
            state["step"] += 1
            job.step(state["step"], of=STEPS, state=state, loss=loss, accuracy=accuracy)
            if state["step"] % 250 == 0:
                print(f"step {state['step']}: loss {loss:.3f}, accuracy {accuracy:.2f}", flush=True)
    with open(os.path.join(os.environ.get("RESULT_DIR", "."), "model.json"), "w") as file:
        json.dump(state, file)
    print(f"trained: accuracy {accuracy:.2f}")


main()
'''
IGNORE = """\
# What does not belong to the code that is sent with a job; patterns as in a .gitignore.
training-*/
model.json
"""


@click.command("init", cls=Verb, engine=False, examples=("ffdl init hello && ffdl train hello/manifest.yml --follow",))
@click.argument("name")
def command(name: str) -> None:
    """Make the folder NAME with a job that runs as it stands: a manifest and a training script."""
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(f"{name} exists and is not an empty folder; choose another name")
    import json

    folder.mkdir(parents=True, exist_ok=True)
    quoted = json.dumps(folder.absolute().name, ensure_ascii=False)
    (folder / "manifest.yml").write_text(MANIFEST.format(name=quoted), "utf-8")
    (folder / "train.py").write_text(TRAIN, "utf-8")
    (folder / ".ffdlignore").write_text(IGNORE, "utf-8")
    tell(f"made {folder / 'manifest.yml'} and {folder / 'train.py'}; run them with")
    import shlex

    tell(f"  ffdl train {shlex.quote(str(folder / 'manifest.yml'))} --follow")
