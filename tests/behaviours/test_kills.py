"""`kill -9` of everything, everywhere: the job completes with the same model, and nothing is left over."""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.behaviours.stores import fill, store
from tests.behaviours.user import FFDL, GATED, SHORT, User
from tests.faults.throttle import WITHOUT, Throttle
from tests.steps import s3 as servers

NO_RUNNER = pytest.mark.local("a cluster has no runner")
RUNNER = pytest.param("runner", marks=NO_RUNNER)


@pytest.mark.parametrize("victim", ["learner", "agent", "supervisor", "helper", RUNNER])
@pytest.mark.parametrize("step", [1, 30, 50])
def test_killed_while_learning(user: User, short_model: bytes, victim: str, step: int) -> None:
    """Any process of a job may die at any step; a user finds the same model at the end."""
    job = user.train(user.job(env={**SHORT, **GATED}))
    user.until_step(job, step)
    assert user.kill(victim), user.story()
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model
    if victim == "learner":  # in place: there is no second attempt to be seen
        assert (user.engine.status(job).attempts, user.engine.status(job).restarts) == (1, 1)
        assert re.search(r"Attempts +1 \(killed and started again in place 1 time\)", user.ffdl("show", job).stdout)


@pytest.mark.parametrize(
    ("phase", "victim"),
    [
        *(("download", victim) for victim in ("download", "supervisor", "helper")),
        *(("store", victim) for victim in ("store", "supervisor")),
        *(pytest.param(phase, "runner", marks=NO_RUNNER) for phase in ("download", "store")),
    ],
)
def test_killed_while_bytes_move(
    user: User,
    s3: servers.Server,
    buckets: tuple[Path, Path],
    dice: random.Random,
    short_model: bytes,
    victim: str,
    phase: str,
) -> None:
    """Downloads and uploads are tried again, whole, whoever dies in them."""
    ballast = {"BALLAST": "256"} if phase == "store" else {}  # so that moving it takes a while
    fill(buckets[0], ["data"], 8 << 20, dice)
    with contextlib.closing(Throttle(s3.address, (s3.address, s3.port))) as road:
        road.rate = 5e5 if phase == "download" else WITHOUT  # a slow road does it here
        stores = store(road.endpoint, buckets[0].name, "")
        del stores["data_stores"][0]["training_results"]  # they go to the engine's own store
        command = [str(FFDL), "train", str(user.job(env={**SHORT, **ballast}, **stores) / "manifest.yml")]
        training = subprocess.Popen(command, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def killed() -> bool:  # in one go: by a second look the step may be over
            return road.passed > 1 << 20 and bool(user.pids(phase)) and user.kill(victim)

        user.wait_for(killed, f"{victim} during the {phase} step")
        road.rate = WITHOUT
        job = training.communicate()[0].strip().removeprefix("Model ID: ")
        user.jobs.add(job)
        assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


@pytest.mark.timeout(900)  # each of them costs seconds
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(20, marks=pytest.mark.local("a new pod takes seconds: six kills there")),
        pytest.param(6, marks=pytest.mark.cluster("twenty kills here")),
    ],
)
def test_random_kills_in_one_run(user: User, reference: bytes, dice: random.Random, kills: int) -> None:
    """A bad day: whatever dies, in whatever order, the run comes to its end."""
    job = user.train(user.job())
    victims = ["learner", "agent", "supervisor", "helper", "download", "store"]
    victims += ["runner"] * (user.engine_name == "local")
    killed = []
    while len(killed) < kills and not user.engine.status(job).terminal:
        user.wait_for(lambda: bool(user.running()) or user.engine.status(job).terminal, "a process")
        victim = dice.choice(victims)
        if user.kill(victim):
            killed.append(victim)
            user.until_step(job, min(150, user.step(job) + dice.randrange(4)))
    print("killed", killed)
    assert user.until_over(job, 400).state == "COMPLETED", user.story()
    assert user.model(job) == reference
