"""Two helpers of one job at once, after a partition or a node that hung: the newer one wins, the older does no harm."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.learner import contract
from ffdl.steps.checkpoint import Helper
from ffdl.steps.effects import Annotate, DeletePod, Effect, Mark, Stop
from ffdl.steps.view import LocalView
from tests.steps.pods import JOB_ID, TOKEN, TRAIN, WAIT, Job, expected_sum, until

TOGETHER = Path(__file__).parents[1] / "behaviours" / "world" / "train.py"  # shuffling, momentum, random numbers
LEARNERS, STEPS = 3, 120
LOOP = "while ! [ -e ../go ]; do sleep 0.05; done"


def train_together(job: Job, **env: str) -> None:
    """Starts the learners. Their processes' ids are in /job/pid-N."""
    shutil.copy(TOGETHER, job.shared / "job/model-code/train.py")
    command = f'echo $$ > "../pid-$LEARNER_ID"; exec {sys.executable} train.py'
    env |= {"STEPS": str(STEPS), "OPENBLAS_NUM_THREADS": "1"}
    job.configure(
        command, learners=LEARNERS, distribution="peer", checkpoint_interval=None, checkpoint_steps=20, env=env
    )
    for index in range(LEARNERS):
        job.agent(index)


def models(job: Job) -> list[bytes]:
    folder = job.shared / "mnt/results/dlaas-trained-models" / JOB_ID
    return [(folder / f"model-{number + 1}.npy").read_bytes() for number in range(LEARNERS)]


def step(job: Job) -> int:
    """The last one that learner 1 has told of."""
    path = job.shared / "job/logs/learner-1/evaluation-metrics.txt"
    *lines, _ = path.read_text().split("\n") if path.exists() else [""]  # the last one may be on its way
    return int(json.loads(lines[-1])["etimes"]["iteration"]["value"]) if lines else 0


def until_step(job: Job, wanted: int) -> None:
    until(lambda: step(job) >= wanted, f"step {wanted}")


def until_joined(job: Job, epoch: int, learners: int = LEARNERS) -> None:
    """Waits until the helper of that epoch has all learners."""

    def joined() -> bool:
        report = job.report()
        return bool(report.get("epoch") == epoch and report["learners"]["joined"] == learners)

    until(joined, f"all learners at helper {epoch}")


def kill_learner(job: Job, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
        os.kill(int(job.job_file(f"pid-{number}").read_text()), signal.SIGKILL)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of learners that nobody disturbed, the same at each."""
    job = Job(tmp_path_factory.mktemp("undisturbed"))
    try:
        helper = job.helper()
        train_together(job)
        assert [job.ended(index) for index in range(LEARNERS)] == [0] * LEARNERS
        assert helper.wait(WAIT) == 0
    finally:
        job.close()
    first, *others = models(job)
    assert others == [first] * (LEARNERS - 1)
    return first


@pytest.fixture
def dice() -> Iterator[random.Random]:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    return random.Random(seed)


@pytest.mark.timeout(600)
def test_learners_that_train_together_follow_the_newer_one(job: Job, undisturbed: bytes, dice: random.Random) -> None:
    """The first stops answering, a second one takes over, and a third; meanwhile learners die. Each old one comes back,
    before the next world begins or after, with messages in its sockets that it has not heard: it ends, and the model
    is what it would have been."""
    helper = job.helper()
    train_together(job, GATED="1", PAUSE="0.03")
    for number, moment in enumerate((dice.randrange(5, 35), dice.randrange(45, 75), dice.randrange(85, 115)), 1):
        until_step(job, moment)
        old, dies = helper, dice.choice(["nobody", "before", "after"])
        print(f"helper {number} stops at step {moment}; a learner is killed: {dies}")
        old.send_signal(signal.SIGSTOP)
        if dies == "before":
            kill_learner(job, dice.randrange(LEARNERS) + 1)
        helper = job.helper()
        if early := dice.random() < 0.3:
            old.send_signal(signal.SIGCONT)
        if dies == "after":
            kill_learner(job, dice.randrange(LEARNERS) + 1)
        until_joined(job, number + 1)
        if not early:
            old.send_signal(signal.SIGCONT)
        assert old.wait(WAIT) == 75
    job.job_file("gate").touch()
    assert [job.ended(index) for index in range(LEARNERS)] == [0] * LEARNERS
    assert helper.wait(WAIT) == 0
    assert models(job) == [undisturbed] * LEARNERS
    assert job.address()["outcome"]["completed"]
    assert job.report()["epoch"] == job.address()["epoch"] == 4
    assert job.requests() == []


def test_an_older_helper_ends_by_itself(job: Job) -> None:
    """It holds a pod, and would tell of a job that it no longer knows."""
    job.configure(LOOP)
    first, _ = job.helper(), job.agent()
    until(lambda: job.report().get("message") == "training", "training")
    second = job.helper()
    until_joined(job, 2, 1)
    assert first.wait(WAIT) == 75
    job.job_file("go").touch()
    assert job.ended() == 0
    assert second.wait(WAIT) == 0


def test_one_that_hung_at_its_start_is_not_found(job: Job) -> None:
    """It has taken its number, and not said yet where it is, when its file system hangs. Who comes later must find the
    other one."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 300")
    hangs = job.control / contract.CONTROL_STATUS
    os.mkfifo(hangs)
    held = os.open(hangs, os.O_RDWR)
    old = job.helper()
    until(lambda: _has_open(old.pid, hangs), "the helper that hangs")
    agent = job.agent()  # a status, in place of the one that can't be read
    new = job.helper()
    until_joined(job, 2, 1)
    os.close(held)
    assert old.wait(WAIT) == 75
    assert job.address()["epoch"] == 2
    agent.terminate()
    assert job.ended() == 75
    job.agent()
    assert job.ended() == 0
    assert new.wait(WAIT) == 0
    assert f"sum {expected_sum(300)}" in job.log()


def _has_open(pid: int, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(os.readlink(each) == str(path) for each in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_an_address_that_an_older_one_has_replaced_is_written_again(job: Job) -> None:
    """A write that hung for minutes, and then took place after all."""
    job.configure(LOOP)
    helper, _ = job.helper(), job.agent()
    address = until(job.address, "the address")
    contract.atomic_write(str(job.shared / "ffdl/helper/address.json"), json.dumps({**address, "epoch": 0}).encode())
    assert until(lambda: job.address()["epoch"] == 1 and job.address(), "its own address") == address
    job.job_file("go").touch()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0


def test_a_halt_that_an_older_one_has_begun_is_none_of_the_resumed_job(job: Job) -> None:
    """It was about to keep pods from starting when it stopped; now they are to start."""
    job.configure(LOOP)
    old, _ = job.helper(), job.agent()
    until(lambda: job.report().get("message") == "training", "training")
    job.suspend()
    until(lambda: (job.shared / "ffdl/helper/halted").exists(), "the marker")
    old.send_signal(signal.SIGSTOP)
    assert job.ended() == 75
    job.suspend(False)
    job.waits()
    new = job.helper()
    until(lambda: job.report().get("epoch") == 2, "the second helper")
    old.send_signal(signal.SIGCONT)
    assert old.wait(WAIT) == 75
    assert job.requests() == []
    job.agent()
    job.job_file("go").touch()
    assert job.ended() == 0
    assert new.wait(WAIT) == 0


@pytest.mark.parametrize("overtaken", [False, True])
@pytest.mark.parametrize("effect", [Annotate({"a": "b"}), DeletePod("pod"), Mark(), Stop({"a": "b"})])
def test_nothing_that_lasts_comes_of_an_older_one(
    job: Job, monkeypatch: pytest.MonkeyPatch, effect: Effect, overtaken: bool
) -> None:
    """It had decided so before it stood still, and when it goes on it does that first."""
    job.configure(LOOP)
    monkeypatch.setenv(contract.ROOT_ENV, str(job.shared))
    spec = contract.JobSpec.from_json((job.shared / "ffdl/config/job.json").read_text())
    with contextlib.closing(LocalView(str(job.control))) as view:
        helper = Helper(spec, JOB_ID, TOKEN, view)
        if overtaken:
            view.take_epoch()
        helper._do([effect])
        helper.journal.close()
    done = bool(job.requests()) or (job.shared / "ffdl/helper/halted").exists()
    assert done is not overtaken
