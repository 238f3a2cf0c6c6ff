"""Learners that run a process of the command for each of their GPUs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.behaviours.user import User

SCRIPT = """
import json, os, socket, sys, time

# all meet at the first one, as the processes of a framework do
own = os.environ
rank, size = int(own["RANK"]), int(own["WORLD_SIZE"])
if str(rank) == own.get("FAILS"):
    sys.exit(4)
begun = os.path.join(own["CHECKPOINT_DIR"], f"begun-{rank}")
with open(begun, "a") as stream:
    stream.write("x")
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "LEARNER_ID", "JAX_PROCESS_ID")
place = " ".join(own[name] for name in names)
os.write(1, f"place {place}\\n".encode())
address = own["MASTER_ADDR"], int(own["MASTER_PORT"])
if rank == 0:
    with socket.create_server(address) as server:
        told = {server.accept()[0].recv(1).decode() for _ in range(size - 1)}
    os.write(1, f"met {sorted(told)}\\n".encode())
while rank:
    try:
        with socket.create_connection(address) as connection:
            connection.sendall(str(rank).encode())
        break
    except OSError:
        time.sleep(0.05)
while not os.path.exists(os.path.join(own["JOB_STATE_DIR"], "gate")):
    time.sleep(0.05)
"""


def two_by_two(user: User, script: str = SCRIPT, **env: str) -> Path:
    user.env["FFDL_MACHINE"] = user.env.get("FFDL_MACHINE", "cpus=4,memory=16GiB") + ",gpus=4"
    folder = user.job(
        learners=2, gpus=2, cpus=0.3, env=env, distribution={"kind": "peer", "processes": "per-gpu"}
    )  # fmt: skip
    (folder / "train.py").write_text(script)
    return folder


def begun(user: User, job: str) -> list[int]:
    files = [user.volume(job) / "job" / "checkpoints" / f"begun-{rank}" for rank in range(4)]
    return [len(path.read_text()) if path.exists() else 0 for path in files]


def test_each_process_knows_its_place(user: User) -> None:
    """A script written for torchrun runs as it is, and its learner's log has what all of its processes say."""
    job = user.train(two_by_two(user))
    user.wait_for(lambda: begun(user, job) == [1] * 4, "all processes")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    first, second = (user.ffdl("logs", job, "--learner", number).stdout for number in ("1", "2"))
    for said, places in ((first, ("0 4 0 2 0 1 0", "1 4 1 2 0 1 1")), (second, ("2 4 0 2 1 2 2", "3 4 1 2 1 2 3"))):
        assert all(f"place {place}" in said for place in places)
    assert "met ['1', '2', '3']" in first


def test_the_first_that_fails_ends_the_others(user: User) -> None:
    """The others wait for it, and would for ever."""
    job = user.train(two_by_two(user, FAILS="3"))
    assert user.failed(job) == "learner 2 exited with code 4"


def test_one_that_is_killed_is_started_again_with_all_others(user: User) -> None:
    """To them it is as if a learner were lost."""
    job = user.train(two_by_two(user))
    user.wait_for(lambda: begun(user, job) == [1] * 4, "all processes")
    scripts = {pid: said for pid, said in user.processes().items() if said.startswith("python")}
    last = max(pid for pid, said in scripts.items() if "train.py" in said and "ffdl.steps" not in said)
    os.kill(last, signal.SIGKILL)
    user.wait_for(lambda: begun(user, job) == [2] * 4, "all processes again")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()


@pytest.mark.parametrize("how", ["run", "session"])
def test_the_library_s_worlds_are_of_learners(user: User, how: str) -> None:
    """Two processes would each take themselves for the learner; one of them may still report steps."""
    session = "with learner.session() as job:\n    job.step(3)\n    print('reported, alone:', job.size == 1)\n"
    script = "learner.run(print)\n" if how == "run" else session
    job = user.train(two_by_two(user, f"from ffdl import learner\n\n{script}"))
    if how == "run":
        assert user.failed(job).endswith("exited with code 1")
        said = user.ffdl("logs", job).stdout
        assert "ffdl: learner.run is for one process in each learner; write processes: one" in said
    else:
        assert user.until_over(job).state == "COMPLETED", user.story()
        assert user.ffdl("logs", job).stdout.count("reported, alone: True") == 4
