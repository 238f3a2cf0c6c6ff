"""Learners that train one model together: whatever happens to one of them, all end with the same bits."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from tests.behaviours import worlds
from tests.behaviours.conftest import Visit
from tests.behaviours.user import GATED, User
from tests.behaviours.worlds import generations

LEARNERS = 3
STANDS_STILL = 5.0  # seconds that no learner may be replaced for
PEERS = {"learners": LEARNERS, "cpus": 0.2, "distribution": {"kind": "peer"}}


def peers(user: User, **env: str) -> Path:
    return worlds.world(user, env=env, **PEERS)


def models(user: User, job: str) -> list[bytes]:
    return worlds.models(user, job, LEARNERS)


@pytest.fixture(scope="module")
def undisturbed(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nobody disturbed: the same at every learner, and one that has learned."""
    with visit(tmp_path_factory.mktemp("peers")) as someone:
        job = someone.train(peers(someone, PAUSE="0"))
        assert someone.until_over(job).state == "COMPLETED", someone.story()
        assert worlds.loss(someone, job) < 0.01
        first, *others = models(someone, job)
        assert others == [first, first]
        return first


@pytest.mark.parametrize("victim", ["learner", "agent", "supervisor", "helper"])
def test_one_that_is_killed_begins_anew_with_the_others(user: User, undisturbed: bytes, victim: str) -> None:
    """The others stay as processes, go back to the last state that all have, and the model is as if nothing was."""
    job = user.train(peers(user, **GATED))
    user.until_step(job, 45)
    before = set(user.pids("learner"))
    assert user.kill(victim), user.story()
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 3
    assert len(before) == 3


def test_the_others_stay_where_they_are(user: User, undisturbed: bytes) -> None:
    """In place: what a process has loaded and compiled need not be loaded again because another one died."""
    job = user.train(peers(user, **GATED))
    user.until_step(job, 30)
    before = set(user.pids("learner"))
    os.kill(victim := max(before), signal.SIGKILL)
    user.wait_for(lambda: len(set(user.pids("learner")) - before) == 1, "the new process")
    assert before - {victim} <= set(user.pids("learner"))
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 3
    assert generations(user, job) == 2


def test_halted_together_and_resumed(user: User, undisturbed: bytes) -> None:
    """All halt at the same step: a state that one has and another has not would be none to go on from."""
    job = user.train(peers(user, **GATED, PAUSE="0.05"))
    for number, step in enumerate((20, 70), 1):
        user.until_step(job, step)
        for learner in range(1, LEARNERS + 1):  # it may be beyond that step already, and they still on their way
            user.wait_for(
                lambda n=learner, wanted=number: generations(user, job, n) >= wanted, "all of them in the world"
            )
        user.ffdl("halt", job)
        assert user.ffdl("status", job).stdout.strip() == "HALTED"
        user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 3
    said = user.ffdl("logs", job).stdout
    halts = [line.split("halted at step ")[1].split(",")[0] for line in said.splitlines() if "halted at step" in line]
    assert len(halts) == 6, said
    assert all(halts.count(one) % LEARNERS == 0 for one in halts)


def test_stopped_and_gone_on_with_as_another_job(user: User, undisturbed: bytes) -> None:
    """From the last step that the store has of all of them, in whatever state each was when it was stopped."""
    first = user.train(peers(user, **GATED))
    user.until_step(first, 50)
    user.ffdl("stop", first)
    assert user.until_over(first).state == "FAILED"
    job = user.ffdl("resubmit", first, "--from-checkpoint").stdout.removeprefix("Model ID: ").strip()
    user.until_step(job, 55)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 3
    assert "begins at 0" not in user.ffdl("logs", job).stdout


@pytest.mark.timeout(900)  # each of them costs seconds
def test_random_kills(user: User, undisturbed: bytes, dice: random.Random) -> None:
    """Two at once, one again and again, while they begin, learn, save and go on."""
    job = user.train(peers(user, **GATED))
    killed: list[str] = []
    while len(killed) < 6 and not user.engine.status(job).terminal:
        user.wait_for(lambda: bool(user.pids("learner")) or user.engine.status(job).terminal, "a learner")
        for victim in dice.choices(["learner", "agent", "supervisor", "helper"], k=dice.choice([1, 1, 2])):
            killed += [victim] * user.kill(victim)
        user.until_step(job, min(110, user.step(job) + dice.randrange(25)))
    print("killed", killed)
    user.open_gate(job)
    assert user.until_over(job, 240).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 3


def test_one_that_stands_still_for_a_while_is_waited_for(user: User, undisturbed: bytes) -> None:
    """A machine that swaps, a debugger: nothing is lost, nothing is done twice."""
    job = user.train(peers(user, **GATED))
    user.until_step(job, 30)
    pid = user.pids("learner")[0]
    os.kill(pid, signal.SIGSTOP)
    _until_stopped(user, pid)
    time.sleep(STANDS_STILL)
    assert pid in user.pids("learner"), user.story()
    os.kill(pid, signal.SIGCONT)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 3
    assert generations(user, job) == 1


def test_one_that_stands_still_for_long_is_replaced(user: User, undisturbed: bytes) -> None:
    """The others do not wait for ever for what may never go on."""
    job = user.train(peers(user, **GATED))
    user.until_step(job, 30)
    os.kill(user.pids("learner")[0], signal.SIGSTOP)
    user.open_gate(job)
    assert user.until_over(job, 240).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 3
    assert generations(user, job) == 2


def _until_stopped(user: User, pid: int) -> None:
    def stands_still() -> bool:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    user.wait_for(stands_still, "a learner that stands still")


def test_one_that_fails_ends_the_job_with_its_code(user: User) -> None:
    """Not with the consequences that it has for the others."""
    job = user.train(peers(user, FAILS_AT="25"))
    assert user.failed(job) == "learner 2 exited with code 3"


WORLDS = """
import gc, os, weakref
import numpy as np
from ffdl import learner

gc.disable()
last = []

def train(job):
    print("generation", job.generation, "finds of the last one:", [one() for one in last], flush=True)
    gradients = job.overlay().buckets({"w": np.zeros(1000)})
    last[:] = [weakref.ref(gradients), weakref.ref(gradients["w"])]
    step = 0
    while step == 0 or gradients["w"][0] < 1:
        gradients["w"] = os.path.exists(os.environ["JOB_STATE_DIR"] + "/gate")
        gradients.ready()
        gradients.wait()
        step += 1
        job.step(step)

learner.run(train)
"""


def test_a_world_that_is_over_takes_no_memory(user: User) -> None:
    """What is left of a large model for each learner that was lost would soon be too much."""
    folder = worlds.world(user, **{**PEERS, "learners": 2})
    (folder / "train.py").write_text(WORLDS)
    job = user.train(folder)

    def found() -> list[str]:
        return re.findall(r"finds of the last one: (.*)", user.ffdl("logs", job).stdout)

    for world in (1, 2):
        user.wait_for(lambda wanted=2 * world: len(found()) >= wanted, "all of them in the world")
        assert user.kill("learner"), user.story()
    user.wait_for(lambda: len(found()) >= 6, "all of them in the last world")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert set(found()) == {"[]", "[None, None]"}


LATE = """
import os, signal, time
import numpy as np
from ffdl import learner

def train(job):
    state = job.restore() or {"step": 0}
    for step in range(state["step"], 20):
        job.overlay().all_reduce(np.ones(10))
        state["step"] = step + 1
        job.step(step + 1, of=20, state=state)
    while job.rank == 1 and job.generation == 1 and not os.path.exists(again):
        time.sleep(0.05)  # it evaluates its model, say, and hears nothing meanwhile

killed, again = (os.environ["JOB_STATE_DIR"] + name for name in ("/killed", "/again"))
if os.environ["LEARNER_ID"] == "1" and os.path.exists(killed):
    open(again, "w").close()
learner.run(train)
if os.environ["LEARNER_ID"] == "1" and not os.path.exists(killed):
    open(killed, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_one_that_hears_only_at_its_end_that_another_was_lost_goes_back_too(user: User) -> None:
    """The others wait for it in the next world, though all of its work was done in the last one."""
    job = user.train(user.script(LATE, checkpoint={"interval": "5 steps"}, **{**PEERS, "learners": 2}))
    assert user.until_over(job).state == "COMPLETED", user.story()


LONGER = """
import numpy as np
from ffdl import learner

def train(job):
    for step in range(5 + 5 * job.rank):
        job.overlay().all_reduce(np.ones(10))
        job.step(step + 1)

learner.run(train)
"""


def test_one_that_works_longer_than_the_others_is_told_so(user: User) -> None:
    """It is a mistake in the script, and not the loss of a learner, which would be waited for."""
    job = user.train(user.script(LONGER, **{**PEERS, "learners": 2}))
    assert user.failed(job) == "learner 2 exited with code 1"
    log = user.ffdl("logs", "--learner", "2", job).stdout
    assert "Mismatch: this learner calls all_reduce of the sum (80 bytes of float64) as its number 11" in log
    assert "none any more: it has finished" in log


@pytest.mark.parametrize("code", ["0", ""])
def test_a_script_that_ends_itself_where_it_has_finished_is_not_taken_for_lost(user: User, code: str) -> None:
    """`sys.exit()` is how many a main function ends."""
    last = "    if job.rank == 0:\n        raise SystemExit(CODE)\n"
    script = LONGER.replace("\nlearner", last.replace("CODE", code) + "\nlearner")
    job = user.train(user.script(script, **{**PEERS, "learners": 2}))
    assert user.failed(job) == "learner 2 exited with code 1"
    assert "none any more: it has finished" in user.ffdl("logs", "--learner", "2", job).stdout


FRAMEWORK = """
import json, os, socket, sys, time

# a framework of its own, as others see it: each learner needs all others, and exits with an error when one is gone
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
starts = os.path.join(os.environ["RESULT_DIR"], f"starts-{rank}")
with open(starts, "a") as stream:
    stream.write("x")
if rank == 0:
    with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            others = [socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))]
            break
        except OSError:
            time.sleep(0.05)
at = os.path.join(os.environ["CHECKPOINT_DIR"], f"at-{rank}")
step = int(open(at).read()) if os.path.exists(at) else 0
while step < 200:
    for other in others:  # the first one answers once it has heard all
        if rank == 0 and not other.recv(1):
            sys.exit("a peer is gone")
    for other in others:
        other.sendall(b"x")
        if rank and not other.recv(1):
            sys.exit("a peer is gone")
    step += 1
    with open(at + ".tmp", "w") as stream:
        stream.write(str(step))
    os.replace(at + ".tmp", at)
    print("step", step, flush=True)
    time.sleep(0.05)
"""


def test_a_framework_of_its_own_is_started_again(user: User) -> None:
    """It knows nothing of worlds: its processes are ended and started anew, in the same pods, and go on from its
    files."""
    folder = user.job(**PEERS)
    (folder / "train.py").write_text(FRAMEWORK)
    job = user.train(folder)

    def at() -> int:
        return max((int(path.read_text()) for path in user.volume(job).rglob("at-0")), default=0)

    user.wait_for(lambda: at() > 10, "the tenth step")
    assert user.kill("learner"), user.story()
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert [len((user.results(job) / f"starts-{rank}").read_text()) for rank in range(3)] == [2, 2, 2]
