"""Jobs of learners that train together, for the tests of peers and of parameter servers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tests.behaviours.user import User

TRAIN = Path(__file__).parent / "world" / "train.py"


def world(user: User, distribution: object, name: str = "job", **changes: object) -> Path:
    """The folder of a job that trains in that `distribution`."""
    folder = user.job(name, distribution=distribution, **changes)
    shutil.copy(TRAIN, folder / "train.py")
    return folder


def models(user: User, job: str, learners: int) -> list[bytes]:
    """What each of them ended with."""
    return [(user.results(job) / f"model-{number + 1}.npy").read_bytes() for number in range(learners)]


def loss(user: User, job: str, learner: int = 1) -> float:
    """Of a learner's model, relative to knowing nothing."""
    data = np.random.default_rng(0)
    x = data.normal(size=(512, 64))
    y = x @ data.normal(size=64)
    model = np.load(user.results(job) / f"model-{learner}.npy")
    return float(np.mean((x @ model - y) ** 2) / np.mean(y**2))


def said(user: User, job: str, learner: int = 1) -> list[str]:
    return user.ffdl("logs", job, "--learner", str(learner)).stdout.splitlines()


def generations(user: User, job: str, learner: int = 1) -> int:
    """In how many worlds the learner has begun to train."""
    return len([line for line in said(user, job, learner) if "begins at" in line])
