"""`kill -9` of everything, everywhere: the job completes with the same model, and nothing is left over."""

from __future__ import annotations

import random
import subprocess

import pytest

from tests.behaviours.user import FFDL, SHORT, User

NO_RUNNER = pytest.mark.local("a cluster has no runner")
RUNNER = pytest.param("runner", marks=NO_RUNNER)


@pytest.mark.parametrize("victim", ["learner", "agent", "supervisor", "helper", RUNNER])
@pytest.mark.parametrize("step", [1, 30, 50])
def test_killed_while_learning(user: User, short_model: bytes, victim: str, step: int) -> None:
    """Any process of a job may die at any step; a user finds the same model at the end."""
    job = user.train(user.job(env=SHORT))
    user.until_step(job, step)
    assert user.kill(victim), user.story()
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


@pytest.mark.parametrize(
    ("phase", "victim"),
    [
        *(("download", victim) for victim in ("download", "supervisor", "helper")),
        *(("store", victim) for victim in ("store", "supervisor")),
        *(pytest.param(phase, "runner", marks=NO_RUNNER) for phase in ("download", "store")),
    ],
)
def test_killed_while_bytes_move(user: User, short_model: bytes, victim: str, phase: str) -> None:
    """Downloads and uploads are tried again, whole, whoever dies in them."""
    ballast = {"BALLAST": "256"} if phase == "store" else {}  # so that moving it takes a while
    folder = user.job(env={**SHORT, **ballast})
    if phase == "download":
        (folder / "ballast").write_bytes(random.randbytes(64 << 20))
    command = [str(FFDL), "train", str(folder / "manifest.yml")]
    training = subprocess.Popen(command, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    user.wait_for(lambda: bool(user.pids(phase) and user.pids(victim)), f"{victim} during the {phase} step", 120)
    assert user.kill(victim), user.story()
    job = training.communicate()[0].strip().removeprefix("Model ID: ")
    user.jobs.add(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


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
    assert user.until_over(job, 200).state == "COMPLETED", user.story()
    assert user.model(job) == reference
