"""Learners that train one model by way of parameter servers: in lockstep the same bits come out whatever happens."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours import worlds
from tests.behaviours.conftest import Visit
from tests.behaviours.user import GATED, User
from tests.behaviours.worlds import generations, loss

LEARNERS = 2


def served(
    user: User, mode: str = "sync", servers: int = 2, learners: int = LEARNERS, name: str = "job", **env: str
) -> Path:
    distribution = {"kind": "parameter-server", "servers": servers, "cpus": 0.1, "mode": mode}
    return worlds.world(user, distribution, name, env=env, learners=learners, cpus=0.2)


def models(user: User, job: str, learners: int = LEARNERS) -> list[bytes]:
    return worlds.models(user, job, learners)


@pytest.fixture(scope="module")
def undisturbed(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nobody disturbed: the same at every learner."""
    with visit(tmp_path_factory.mktemp("servers")) as someone:
        job = someone.train(served(someone, PAUSE="0"))
        assert someone.until_over(job).state == "COMPLETED", someone.story()
        assert loss(someone, job) < 0.01
        first, *others = models(someone, job)
        assert others == [first]
        return first


def test_what_servers_do_is_shown_like_what_learners_do(user: User) -> None:
    """Their state stands in the table, what they say in the logs: nothing of a job is hidden."""
    job = user.train(served(user, PAUSE="0"))
    assert user.until_over(job).state == "COMPLETED", user.story()
    steps = {node["name"]: node["phase"] for node in json.loads(user.ffdl("show", job, "-o", "json").stdout)["nodes"]}
    assert steps["parameter-server-1"] == steps["parameter-server-2"] == steps["learner-2"] == "Succeeded"
    assert "the job is complete" in user.ffdl("logs", job, "--step", "parameter-server-2").stdout


@pytest.mark.parametrize("victim", ["server", "learner", "agent", "supervisor", "helper"])
def test_the_model_is_the_same_whoever_is_killed(user: User, undisturbed: bytes, victim: str) -> None:
    """All go back to the last step that learners and servers have, and nobody starts that need not."""
    job = user.train(served(user, **GATED))
    user.until_step(job, 45)
    before = set(user.pids("learner"))
    assert user.kill(victim), user.story()
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * LEARNERS
    assert len(before) == LEARNERS


def test_halted_together_and_resumed(user: User, undisturbed: bytes) -> None:
    """Servers leave after the learners, with what they had at the step at which these have halted."""
    job = user.train(served(user, **GATED))
    for step in (20, 70):
        user.until_step(job, step)
        user.ffdl("halt", job)
        assert user.ffdl("status", job).stdout.strip() == "HALTED"
        user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * LEARNERS
    assert generations(user, job) == 3, "a halt costs no step"


@pytest.mark.timeout(900)  # each of them costs seconds
def test_random_kills(user: User, undisturbed: bytes, dice: random.Random) -> None:
    """Two at once, one again and again, while they begin, learn, save and go on."""
    job = user.train(served(user, **GATED))
    killed: list[str] = []
    while len(killed) < 6 and not user.engine.status(job).terminal:
        user.wait_for(lambda: bool(user.pids("server")) or user.engine.status(job).terminal, "a server")
        for victim in dice.choices(["server", "learner", "agent", "supervisor", "helper"], k=dice.choice([1, 1, 2])):
            killed += [victim] * user.kill(victim)
        user.until_step(job, min(110, user.step(job) + dice.randrange(25)))
    print("killed", killed)
    user.open_gate(job)
    assert user.until_over(job, 240).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * LEARNERS


def test_a_server_that_stands_still_is_replaced(user: User, undisturbed: bytes) -> None:
    """Learners do not wait for ever for what may never go on."""
    job = user.train(served(user, **GATED))
    user.until_step(job, 30)
    os.kill(user.pids("server")[0], signal.SIGSTOP)
    user.open_gate(job)
    assert user.until_over(job, 240).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * LEARNERS


FAILS = """
import os, sys, time
import numpy as np
from ffdl import learner
from ffdl.learner.parameter_server import SGD

def train(job):
    model = {"w": np.zeros(10)}
    server = job.parameter_server(model, SGD(0.1))
    print("begins at generation", job.generation, flush=True)
    for step in range(10**6):
        server.step({"w": np.ones(10)})
        job.step(step + 1)
        if job.rank == 1:
            while not os.path.exists(os.environ["JOB_STATE_DIR"] + "/gate"):
                time.sleep(0.05)  # a long step
            sys.exit(3)
        time.sleep(0.05)

learner.run(train)
"""


@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_a_failure_of_ones_own_counts_though_a_server_was_lost_before(user: User, mode: str) -> None:
    """One that works for long has not heard of the loss when it fails: it is begun again, and fails again."""
    folder = served(user, mode, servers=1)
    (folder / "train.py").write_text(FAILS)
    job = user.train(folder)
    user.until_step(job, 20)
    assert user.kill("server")
    user.wait_for(lambda: generations(user, job) > 1, "the next world")
    user.open_gate(job)
    assert user.failed(job) == "learner 2 exited with code 3"


@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_learners_on_their_own_clocks_do_not_disturb_each_other(user: User, mode: str) -> None:
    """One is killed, a server is killed, all are halted: what learners have found out is not lost with them."""
    job = user.train(served(user, mode, **GATED))
    user.until_step(job, 30)
    pids = set(user.pids("learner"))
    assert user.kill("learner")
    user.wait_for(lambda: len(set(user.pids("learner")) - pids) == 1, "the new process")
    user.until_step(job, 60)
    assert [generations(user, job, number) for number in (1, 2)] in ([1, 2], [2, 1]), "the other goes on"
    pids = set(user.pids("learner"))
    assert user.kill("server")
    user.wait_for(lambda: generations(user, job) + generations(user, job, 2) == 5, "both in the next world")
    assert set(user.pids("learner")) == pids, "learners stay"
    user.until_step(job, 80)
    user.ffdl("halt", job)
    user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert loss(user, job) < 0.05
    assert len(set(models(user, job))) == 1, "they have trained one model, and end with it"


@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_who_is_through_first_waits_for_what_all_have_trained(user: User, mode: str) -> None:
    """A halt, the loss of a server, and its own process's, come in between."""
    distribution = {"kind": "parameter-server", "servers": 2, "cpus": 0.1, "mode": mode}
    command = 'if [ "$LEARNER_ID" = 1 ]; then unset GATED; fi; python train.py "$LEARNER_ID"'
    framework = {"name": "numpy", "version": "2", "command": command}
    job = user.train(worlds.world(user, distribution, learners=2, cpus=0.2, framework=framework, env=GATED))
    user.until_step(job, 118)
    user.ffdl("halt", job)
    user.ffdl("resume", job)
    user.wait_for(lambda: len(user.pids("learner")) == 2, "both")
    begun = generations(user, job)
    assert user.kill("server")
    user.wait_for(lambda: generations(user, job) > begun, "the next world")
    begun = generations(user, job)
    said = user.processes()
    os.kill(next(pid for pid in user.pids("learner") if "train.py 1 " in said[pid]), signal.SIGKILL)
    user.wait_for(lambda: generations(user, job) > begun, "its new process")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert len(set(models(user, job))) == 1
    assert loss(user, job) < 0.05


def test_a_server_is_lost_before_it_has_saved_anything(user: User) -> None:
    """Learner 1 is done already: it is learner 2 that gives the new server what to begin with."""
    distribution = {"kind": "parameter-server", "servers": 2, "cpus": 0.1, "mode": "async"}
    command = 'if [ "$LEARNER_ID" = 1 ]; then unset GATED; export LEAVES=1; fi; python train.py'
    framework = {"name": "numpy", "version": "2", "command": command}
    about = {"learners": 2, "cpus": 0.2, "framework": framework, "checkpoint": {"interval": "10m"}, "env": GATED}
    job = user.train(worlds.world(user, distribution, **about))
    user.until_step(job, 100)
    user.wait_for(lambda: len(user.pids("learner")) == 1, "learner 1 to be done")
    assert user.kill("server")
    user.wait_for(lambda: generations(user, job, 2) == 2, "the next world")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert loss(user, job, 2) < 0.05


def test_averaged_models_are_one_in_the_end(user: User) -> None:
    """Each learner's own momentum is in its checkpoints: a halt changes nothing."""
    results: list[Any] = []
    for disturbed in (False, True):
        job = user.train(served(user, "average", name="again" if disturbed else "first", **GATED))
        user.until_step(job, 40)
        if disturbed:
            user.ffdl("halt", job)
            user.ffdl("resume", job)
            user.wait_for(lambda: user.kill("server"), "a server")
        user.open_gate(job)
        assert user.until_over(job).state == "COMPLETED", user.story()
        results += models(user, job)
    assert len(set(results)) == 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["peer", "parameter-server"])
def test_a_halt_in_the_moment_of_the_end(user: User, dice: random.Random, kind: str) -> None:
    """The job is complete or it is halted, and then completes; nothing waits for who has already left."""
    races = int(os.environ.get("FFDL_TEST_RACES", "3"))
    moments = [dice.uniform(0.0, 1.0) for _ in range(races)]

    def race(number: int) -> str:
        distribution = {"kind": kind} | ({"servers": 1, "cpus": 0.1} if kind == "parameter-server" else {})
        env = {"STEPS": "20", "PAUSE": "0.05"}
        job = user.train(worlds.world(user, distribution, f"race-{number}", env=env, learners=LEARNERS, cpus=0.2))
        user.until_step(job, 12)
        time.sleep(moments[number])  # the moment of the race is left to chance
        user.ffdl("halt", job, code=None)
        state = user.until(job, lambda status: status.terminal or status.state == "HALTED").state
        if state == "HALTED":
            user.ffdl("resume", job)
        assert user.until_over(job).state == "COMPLETED", user.story()
        first, second = models(user, job)
        assert first == second
        return f"{state} {hash(first)}"

    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(race, range(races)))
    print(ended)
    assert len({one.split()[1] for one in ended}) == 1, "the same model each time"


def test_many_learners_and_servers(user: User) -> None:
    """Sixteen and four, on this machine: they start, train and end."""
    folder = served(user, learners=16, servers=4, STEPS="12", PAUSE="0")
    text = (folder / "manifest.yml").read_text()
    (folder / "manifest.yml").write_text(text.replace("cpus: 0.2", "cpus: 0.08").replace("cpus: 0.1", "cpus: 0.05"))
    job = user.train(folder)
    assert user.until_over(job, 280).state == "COMPLETED", user.story()
    assert len(set(models(user, job, 16))) == 1
