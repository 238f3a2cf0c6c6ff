"""Halting is suspending the Workflow, at any moment of its life; what a halted job held is free for others."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.conftest import Visit, undisturbed
from tests.behaviours.kubernetes_api import Object
from tests.behaviours.stores import fill, store, tree
from tests.behaviours.user import GATE, SHORT
from tests.steps import s3 as servers

ENDED_WITHIN, BACK_WITHIN = 5, 10  # seconds


def ends(pods: list[Object]) -> list[float]:
    """When the last container of each pod ended, in unix seconds."""
    found = []
    for pod in pods:
        states = [status["state"].get("terminated") for status in pod["status"].get("containerStatuses", ())]
        times = [datetime.fromisoformat(state["finishedAt"]).timestamp() for state in states if state]
        found += [max(times)] if times else []
    return found


def until_all_run(user: ClusterUser, job: str, learners: int, within: float) -> None:
    """Waits until helper and learners are there, every container of theirs started."""

    def all_run() -> bool:
        pods = [*user.alive(job, "learner"), *user.alive(job, "checkpoint")]
        started = [all(c["started"] for c in pod["status"].get("containerStatuses", [{}]) if c) for pod in pods]
        running = [pod["status"]["phase"] == "Running" for pod in pods]
        return len(pods) == learners + 1 and all(running) and all(started)

    user.wait_for(all_run, "pods of the resumed job", within)


@pytest.mark.smoke
def test_a_halted_jobs_gpus_are_anothers_and_its_model_is_the_same(user: ClusterUser, short_model: bytes) -> None:
    """All GPUs are wanted for something urgent: they are free at once, and the job goes on later as if undisturbed."""
    job = user.train(user.job(env=SHORT, gpus=8))
    user.until_step(job, 20)
    user.ffdl("halt", job)
    assert user.ffdl("status", job).stdout.strip() == "HALTED"
    assert user.running() == []
    learners = ends(user.pods(job, "learner"))
    assert max(ends(user.pods(job))) - max(learners) <= ENDED_WITHIN, user.story()
    urgent = user.train(user.command("true", "urgent", gpus=8))
    assert user.until_over(urgent).state == "COMPLETED", user.story()
    user.ffdl("resume", job)
    until_all_run(user, job, 1, BACK_WITHIN)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model
    said = user.ffdl("logs", job).stdout
    assert (said.count("restored at"), said.count("restored at None")) == (2, 1)


def test_suspending_the_workflow_halts_and_unsuspending_resumes(user: ClusterUser, short_model: bytes) -> None:
    """The buttons of the Argo UI do no more than this."""
    job = user.train(user.job(env=SHORT))
    user.until_step(job, 20)
    user.api.patch("workflows", job, {"spec": {"suspend": True}})
    user.until(job, lambda status: status.state == "HALTED")
    assert user.running() == []
    user.api.patch("workflows", job, {"spec": {"suspend": None}})
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


@pytest.fixture
def long_model(visit: Visit, tmp_path: Path) -> bytes:
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    return undisturbed(visit, folder, STEPS="300")


def test_ten_halts_in_a_row(long_model: bytes, user: ClusterUser) -> None:
    """A job halted every night for two weeks is the same at the end. (How fast: benchmarks/cluster_halts.py.)"""
    job = user.train(user.job(env={"STEPS": "300"}))
    step = 0
    for _ in range(10):
        user.until_step(job, step + 4, 120)
        user.ffdl("halt", job)
        assert user.running() == []
        step = user.step(job)
        user.ffdl("resume", job)
    assert user.until_over(job, 240).state == "COMPLETED", user.story()
    assert user.model(job) == long_model


def test_halted_in_its_second_attempt(user: ClusterUser, short_model: bytes) -> None:
    """Bad days come together."""
    job = user.train(user.job(env=SHORT, checkpoint={"interval": "5 steps"}))
    user.until_step(job, 10)
    before = user.pids("learner")
    user.delete_pod(job, "learner", force=True)
    user.wait_for(lambda: bool(set(user.pids("learner")) - set(before)), "another attempt")
    user.until_step(job, 25)
    user.ffdl("halt", job)
    assert user.running() == []
    user.ffdl("resume", job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


@pytest.mark.parametrize("force", [True, False], ids=["by force", "gracefully"])
def test_halted_when_its_helpers_pod_has_just_gone(user: ClusterUser, short_model: bytes, force: bool) -> None:
    """Nobody in the job hears of the halt, and Argo starts no other helper in a suspended Workflow."""
    job = user.train(user.job(env=SHORT))
    user.until_step(job, 20)
    user.delete_pod(job, "checkpoint", force)
    user.ffdl("halt", job)
    assert user.ffdl("status", job).stdout.strip() == "HALTED"
    assert user.running() == []
    user.ffdl("resume", job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


def test_a_learner_that_waits_for_room_does_not_start_once_halted(user: ClusterUser) -> None:
    """Argo would start it: a halted job that suddenly trains takes the room that was made."""
    share = 0.6 * user.tenant.cpus()
    first = user.train(user.command(GATE, "first", cpus=share))
    user.until(first, lambda status: status.state == "PROCESSING")
    second = user.train(user.job("second", cpus=share, env={"STEPS": "5"}))
    user.until(second, lambda status: status.state == "PENDING" and "cpu" in status.reason)
    user.ffdl("halt", second)
    assert user.ffdl("status", second).stdout.strip() == "HALTED"
    assert user.alive(second) == []
    user.open_gate(first)
    assert user.until_over(first).state == "COMPLETED", user.story()
    third = user.train(user.command("true", "third", cpus=share))  # there is room, and this one gets it
    assert user.until_over(third).state == "COMPLETED", user.story()
    assert user.alive(second) == []
    assert user.ffdl("status", second).stdout.strip() == "HALTED"
    user.ffdl("resume", second)
    assert user.until_over(second).state == "COMPLETED", user.story()


def test_halted_while_downloading(
    user: ClusterUser, s3: servers.Server, buckets: tuple[Path, Path], dice: object
) -> None:
    """Whatever is already there need not come again; the job begins when it is resumed."""
    data, results = buckets
    fill(data, [f"file-{number}" for number in range(20)], 1 << 20, dice)
    with servers.Proxy(s3.port, address=s3.address) as proxy:
        proxy.freeze = True
        copy = 'cp -r "$DATA_DIR" "$RESULT_DIR/copy"'
        job = user.train(user.command(copy, **store(proxy.endpoint, data.name, results.name)))
        user.wait_for(lambda: proxy.connections > 0, "the download", 60)
        user.ffdl("halt", "--no-wait", job)
        proxy.freeze = False
        user.until(job, lambda status: status.state == "HALTED", 90)
        assert user.running() == []
        assert user.pods(job, "learner") == []
        user.ffdl("resume", job)
        assert user.until_over(job).state == "COMPLETED", user.story()
    assert tree(results / job / "copy") == tree(data)


def test_halted_while_storing(user: ClusterUser, s3: servers.Server, buckets: tuple[Path, Path]) -> None:
    """The store is down and the machine is wanted: the results wait on the job's volume."""
    data, results = buckets
    with servers.Proxy(s3.port, address=s3.address) as proxy:
        command = user.command(
            f'echo kept > "$RESULT_DIR/kept"; {GATE}', **store(proxy.endpoint, data.name, results.name)
        )
        job = user.train(command)
        user.wait_for(lambda: bool(list(user.volume(job).rglob("kept"))), "the script's file", 60)
        proxy.refuse = True
        proxy.cut_all()
        user.open_gate(job)
        user.until(job, lambda status: status.state == "STORING", 120)
        user.ffdl("halt", job)
        assert user.ffdl("status", job).stdout.strip() == "HALTED"
        assert user.running() == []
        proxy.refuse = False
        user.ffdl("resume", job)
        assert user.until_over(job).state == "COMPLETED", user.story()
    assert (results / job / "kept").read_text() == "kept\n"
    assert json.loads((results / job / "status.json").read_text())["outcome"] == "Succeeded"
