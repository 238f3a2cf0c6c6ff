"""The examples of several learners, and of other languages and frameworks, as a reader of the manual runs them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.behaviours.test_learners import TORCH, has_torch
from tests.behaviours.user import User
from tests.frameworks.__main__ import python_if_there

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits"
SHORT = ("--set", "env.EPOCHS='8'")


def accuracies(user: User, job: str) -> list[float]:
    """What each learner's model reads of the images that it never saw."""
    assert user.until_over(job, 280).state == "COMPLETED", user.story()
    return [json.loads(path.read_text())["accuracy"] for path in user.results(job).glob("results-*.json")]


def process(user: User, command: str) -> int:
    """One that runs this command."""
    return next(pid for pid, said in user.processes().items() if command in said)


@pytest.mark.parametrize("way", ["peers.yml", "sync", "async", "easgd", "average"])
def test_learners_that_train_together(user: User, way: str) -> None:
    """Real images, four learners: all of them end with one model, which reads."""
    if way == "peers.yml":
        job = user.train(DIGITS / way, *SHORT)
    else:
        job = user.train(DIGITS / "servers.yml", *SHORT, "--set", f"distribution.mode={way}")
    found = accuracies(user, job)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert found[0] > 0.9


def test_pytorch(user: User) -> None:
    """The model of a PyTorch user, as it is, trained by two learners."""
    if not has_torch(user):
        pytest.skip("needs PyTorch: here in /usr/bin/python3 (apt install python3-torch), on a cluster the image")
    local = user.engine_name == "local"
    image = ("--set", "framework.name=custom", "--set", "framework.version=ffdl-learner-pytorch")
    job = user.train(DIGITS / "pytorch.yml", *SHORT, *(("--python", TORCH) if local else image))
    first, second = accuracies(user, job)
    assert first == second > 0.9


@pytest.mark.local("a cluster has no image with TensorFlow")
def test_tensorflow(user: User) -> None:
    """TF_CONFIG: what a TensorFlow user has already. When one is killed both begin anew, with the last whole epoch."""
    python = python_if_there("tensorflow")
    if python is None:
        pytest.skip("needs TensorFlow: `python -m tests.frameworks tensorflow` installs it")
    job = user.train(DIGITS / "tensorflow.yml", "--set", "env.EPOCHS='40'", "--python", python)
    user.wait_for(lambda: any(user.volume(job).rglob("state.npz")), "the first epoch")
    os.kill(process(user, "digits_tensorflow.py"), signal.SIGKILL)
    first, second = accuracies(user, job)
    assert first == second > 0.9
    beginnings = [line for line in user.ffdl("logs", job).stdout.splitlines() if "beginning with epoch" in line]
    assert len(beginnings) == 4
    assert len([line for line in beginnings if line.endswith(" 1")]) == 2


def test_a_job_without_python(user: User) -> None:
    """Not every training script is Python: bash alone is first-class."""
    job = user.train(EXAMPLES / "bash", "--set", f"framework.version={user.image}")
    assert user.until_over(job).state == "COMPLETED"
    assert any(user.results(job).iterdir())


def test_two_learners_without_python(user: User) -> None:
    """They meet in /job and find the line that all cars ask for, also when one of them is killed on the way."""
    changes = ("--set", f"framework.version={user.image}", "--set", "env.ROUNDS='200'")
    job = user.train(EXAMPLES / "bash" / "together.yml", *changes)
    user.until_step(job, 30)
    os.kill(process(user, "bash together.sh"), signal.SIGKILL)
    assert user.until_over(job).state == "COMPLETED", user.story()
    found = [json.loads((user.results(job) / f"fit-{number}.json").read_text()) for number in (1, 2)]
    assert found[0] == found[1]
    assert found[0]["slope"] == pytest.approx(3.9324, abs=1e-4)  # as R's lm(dist ~ speed, cars) has it
    assert found[0]["intercept"] == pytest.approx(-17.5791, abs=1e-4)
