"""Pods die: whichever it is, and however, the job goes on from its last checkpoint and ends as if nothing had been."""

from __future__ import annotations

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.user import SHORT


def begun(user: ClusterUser, **changes: object) -> str:
    """A job that is well on its way."""
    job = user.train(user.job(env=SHORT, checkpoint={"interval": "5 steps"}, **changes))
    user.until_step(job, 20)
    return job


@pytest.mark.parametrize(
    ("force", "within"), [pytest.param(True, 30, marks=pytest.mark.smoke), (False, 45)], ids=["by force", "gracefully"]
)
def test_the_learners_pod_is_deleted(user: ClusterUser, short_model: bytes, force: bool, within: float) -> None:
    """A node is drained or dies: the learner is back within half a minute, at most as far back as its checkpoint."""
    job = begun(user)
    before = user.pids("learner")
    user.delete_pod(job, "learner", force)
    user.wait_for(lambda: bool(set(user.pids("learner")) - set(before)), "another attempt", within)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model
    again = [line for line in user.ffdl("logs", job).stdout.splitlines() if "restored at" in line]
    assert not again[-1].endswith("None"), again


@pytest.mark.smoke
def test_the_helper_is_killed(user: ClusterUser, short_model: bytes) -> None:
    """The learner trains on meanwhile: nobody waits for a helper."""
    job = begun(user)
    learners, helpers = user.pids("learner"), user.pids("helper")
    assert user.kill("helper")
    user.wait_for(lambda: bool(set(user.pids("helper")) - set(helpers)), "another helper", 30)
    assert user.pids("learner") in (learners, [])
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.engine.status(job).attempts == 1
    assert user.model(job) == short_model


@pytest.mark.parametrize("force", [True, False], ids=["by force", "gracefully"])
def test_the_helpers_pod_is_deleted(user: ClusterUser, short_model: bytes, force: bool) -> None:
    """The helper's pod is a pod like others; its journal is what counts."""
    job = begun(user)
    helpers = user.pids("helper")
    user.delete_pod(job, "checkpoint", force)
    user.wait_for(lambda: bool(set(user.pids("helper")) - set(helpers)), "another helper", 30 if force else 45)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


def test_the_download_is_deleted(user: ClusterUser, short_model: bytes) -> None:
    """Nothing has begun yet: it begins again."""
    job = user.train(user.job(env=SHORT))
    user.delete_pod(job, "download", force=True)
    assert user.until_over(job, 180).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


def test_what_stores_after_a_failure_is_deleted(user: ClusterUser) -> None:
    """The job has failed, and what it left is stored all the same."""
    job = user.train(user.command('head -c 20000000 /dev/urandom > "$RESULT_DIR/left"; exit 3'))
    user.delete_pod(job, "store-after-failure", force=True)
    assert "exited with code 3" in user.failed(job, 180)
    assert (user.results(job) / "left").stat().st_size == 20_000_000


def test_an_evicted_learner(user: ClusterUser, short_model: bytes) -> None:
    """Evicted by the API, as a drain does it."""
    job = begun(user)
    (pod,) = user.alive(job, "learner")
    name, before = pod["metadata"]["name"], user.pids("learner")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    user.api.call("POST", f"{user.api.path('pods', name)}/eviction", eviction)
    user.wait_for(lambda: bool(set(user.pids("learner")) - set(before)), "another attempt", 45)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model
