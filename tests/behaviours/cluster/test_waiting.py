"""What cannot start says why, in the cluster's own words, and ends; what only waits for room goes on waiting."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.user import GATE, SHORT

TOLD_WITHIN = 5.0  # seconds from the moment at which the cluster knows


def assert_told_and_ended(user: ClusterUser, job: str, role: str, words: list[str]) -> None:
    """`list` says PENDING and why within seconds, and after start_timeout the job is FAILED for that reason."""
    user.wait_for(lambda: known(user, job, role), "a reason", 60)
    deadline = time.monotonic() + TOLD_WITHIN
    row: dict[str, Any] = {}
    while time.monotonic() < deadline and not all(word in row.get("reason", "") for word in words):
        (row,) = [row for row in json.loads(user.ffdl("list", "-o", "json").stdout) if row["id"] == job]
    assert row["state"] == "PENDING", f"{row}\n{user.story()}"
    assert all(word in row["reason"] for word in words), f"{row}\n{user.story()}"
    assert "\n" not in row["reason"]
    reason = user.failed(job, 90)
    assert "start_timeout" in reason
    assert all(word in reason for word in words), reason
    user.wait_for(lambda: user.alive(job) == [], "the end of its pods", 10)


def known(user: ClusterUser, job: str, role: str) -> bool:
    """Whether the cluster knows that a pod of that role can't start now, be it that a quota refuses to have it."""
    for pod in user.pods(job, role):
        scheduled = [part["status"] for part in pod["status"].get("conditions", ()) if part["type"] == "PodScheduled"]
        waiting = [c["state"].get("waiting", {}) for c in pod["status"].get("containerStatuses", ())]
        if "False" in scheduled or [why for why in waiting if why.get("reason") not in (None, "PodInitializing")]:
            return True
    nodes = (user.api.get("workflows", job).get("status") or {}).get("nodes") or {}
    return any("quota" in node.get("message", "") for node in nodes.values())


@pytest.mark.smoke
def test_an_image_that_does_not_exist(user: ClusterUser) -> None:
    """A typing error in an image's name is the most common of all."""
    framework = {"name": "custom", "version": "localhost/no-such-image:1", "command": "true"}
    job = user.train(user.job(framework=framework, start_timeout=user.soon))
    assert_told_and_ended(user, job, "learner", ["localhost/no-such-image:1"])


def test_a_secret_that_does_not_exist(user: ClusterUser) -> None:
    """Secrets are made by hand, and forgotten."""
    job = user.train(user.command("true", env_from_secret=["nowhere"], start_timeout=user.soon))
    assert_told_and_ended(user, job, "learner", ['secret "nowhere" not found'])


def test_more_gpus_than_the_quota_has(user: ClusterUser) -> None:
    """Nine of eight: no waiting helps."""
    job = user.train(user.command("true", gpus=9, start_timeout=user.soon))
    assert_told_and_ended(user, job, "learner", ["exceeded quota", "nvidia.com/gpu"])


def test_more_gpus_than_any_node_has(neighbour: ClusterUser) -> None:
    """The same where no quota says so: the scheduler does."""
    neighbour.api.delete("resourcequotas", "ffdl")
    job = neighbour.train(neighbour.command("true", gpus=9, start_timeout=neighbour.soon))
    assert_told_and_ended(neighbour, job, "learner", ["Insufficient nvidia.com/gpu"])


def test_a_claim_that_cannot_bind(neighbour: ClusterUser) -> None:
    """Here not even the helper starts, who would end the job: whoever looks at it does."""
    api = neighbour.api
    claim = api.get("persistentvolumeclaims", "ffdl-results")
    api.delete("persistentvolumeclaims", "ffdl-results")
    neighbour.wait_for(lambda: not api.list("persistentvolumeclaims"), "the end of the claim", 60)
    spec = {"accessModes": claim["spec"]["accessModes"], "resources": claim["spec"]["resources"]}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "ffdl-results"}}
    api.create("persistentvolumeclaims", {**body, "spec": {**spec, "storageClassName": "no-such-class"}})
    job = neighbour.train(neighbour.command("true", start_timeout=neighbour.soon))
    assert_told_and_ended(neighbour, job, "checkpoint", ["unbound", "PersistentVolumeClaims"])


def test_a_helper_that_cannot_start(neighbour: ClusterUser) -> None:
    """Its image is gone from the registry; the job must not wait for it for ever."""
    neighbour.api.patch("configmaps", "ffdl-tenant", {"data": {"tag": "no-such-tag"}})
    job = neighbour.train(neighbour.command("true", start_timeout=neighbour.soon))
    assert_told_and_ended(neighbour, job, "checkpoint", ["no-such-tag"])


@pytest.mark.parametrize("scarce", ["quota", "room"])
def test_no_room_is_waited_for(user: ClusterUser, scarce: str) -> None:
    """Eight GPUs are taken, or all CPUs: a job says so, and runs when it is its turn."""
    needs: dict[str, Any] = {"gpus": 8} if scarce == "quota" else {"cpus": 0.6 * user.tenant.cpus()}
    first = user.train(user.command(GATE, "first", **needs))
    user.until(first, lambda status: status.state == "PROCESSING")
    second = user.train(user.job("second", env=SHORT, **needs))
    word = "exceeded quota" if scarce == "quota" else "Insufficient cpu"
    waiting = user.until(second, lambda status: word in status.reason)
    assert waiting.state == "PENDING"
    user.open_gate(first)
    for job in (first, second):
        assert user.until_over(job, 180).state == "COMPLETED", user.story()
