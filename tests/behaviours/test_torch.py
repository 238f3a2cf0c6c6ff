"""PyTorch's own data-parallel training, with all of its state in ffdl's checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.behaviours.conftest import Visit
from tests.behaviours.test_learners import TORCH, has_torch
from tests.behaviours.user import GATED, User

TRAIN = Path(__file__).parent / "torch" / "train.py"


@pytest.fixture(autouse=True)
def _torch(user: User) -> None:
    if not has_torch(user):
        pytest.skip("needs PyTorch: here in /usr/bin/python3 (apt install python3-torch), on a cluster the image")


def train(user: User, **env: str) -> str:
    framework = {"name": "pytorch", "version": "latest", "command": "python train.py"}
    if user.engine_name != "local":
        framework |= {"name": "custom", "version": "ffdl-learner-pytorch"}
    folder = user.job(framework=framework, learners=2, cpus=0.4, memory="2GB", distribution={"kind": "peer"}, env=env)
    shutil.copy(TRAIN, folder / "train.py")
    return user.train(folder, *(["--python", TORCH] if user.engine_name == "local" else []))


def models(user: User, job: str) -> list[bytes]:
    return [(user.results(job) / f"model-{number}.npy").read_bytes() for number in (1, 2)]


@pytest.fixture(scope="module")
def undisturbed(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nobody disturbed: the same at both learners."""
    with visit(tmp_path_factory.mktemp("torch")) as someone:
        if not has_torch(someone):
            return b""
        job = train(someone)
        assert someone.until_over(job).state == "COMPLETED", someone.story()
        first, second = models(someone, job)
        assert first == second
        return first


@pytest.mark.parametrize("victim", ["learner", "agent"])
def test_a_learner_that_is_killed_costs_no_bit(user: User, undisturbed: bytes, victim: str) -> None:
    """The other's process stays, with a new process group: model, momentum, schedule, order and dropout go on."""
    job = train(user, **GATED)
    user.until_step(job, 45)
    before = set(user.pids("learner"))
    assert user.kill(victim), user.story()
    user.wait_for(lambda: len(set(user.pids("learner")) - before) == 1, "the new process")
    assert len(before & set(user.pids("learner"))) == 1
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 2


def test_a_halt_costs_no_bit(user: User, undisturbed: bytes) -> None:
    job = train(user, **GATED)
    user.until_step(job, 50)
    user.ffdl("halt", job)
    user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 2
