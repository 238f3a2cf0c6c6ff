"""What is done for a job from outside of it: values in, actions out. Times are seconds since NOW."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ffdl.engines.sweep import (
    DeleteJob,
    DeletePod,
    DeleteRecord,
    StopJob,
    helper_runs,
    sweep,
    sweep_carrier,
    sweep_record,
    worth_a_look,
)
from ffdl.learner import contract

NOW = 1_700_000_000.0
HOUR = 3600.0
PULL = 'ErrImagePull: failed to resolve reference "localhost/ffdl-steps:nope"'
BUSY = (
    "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
    "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)
REFUSED = 'pods "j-learner-1" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "v")'


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def workflow(nodes: dict[str, Any] | None = None, age: float = 7200.0, **spec: Any) -> dict[str, Any]:
    annotations = {contract.ANNOTATION_RELEASED: "true", contract.ANNOTATION_START_TIMEOUT: "600"}
    status = {} if nodes is None else {"phase": "Running", "nodes": nodes}
    metadata = {"name": "j", "creationTimestamp": at(-age), "annotations": annotations}
    return {"metadata": metadata, "spec": spec, "status": status}


def attempts(template: str, *ends: tuple[str, str, float]) -> dict[str, Any]:
    """A Retry node with an attempt for each phase, message and start."""
    nodes = {}
    for number, (phase, message, started) in enumerate(ends):
        key = f"j-{template}{number}"
        nodes[key] = {
            "id": key, "name": f"j.{template}({number})", "type": "Pod", "templateName": template,
            "phase": phase, "message": message, "startedAt": at(started),
        }  # fmt: skip
    retry = {"id": f"j-{template}", "name": f"j.{template}", "type": "Retry", "phase": "Running"}
    return {f"j-{template}": {**retry, "templateName": template, "children": list(nodes)}, **nodes}


def pod(role: str, phase: str = "Running", number: int = 0, **metadata: Any) -> dict[str, Any]:
    name = f"j-{role}-{role}{number}"
    metadata = {"name": name, "uid": name, "labels": {contract.LABEL_ROLE: role}, **metadata}
    return {"metadata": {"creationTimestamp": at(-7200), **metadata}, "status": {"phase": phase}}


def scheduled(found: dict[str, Any], since: float) -> dict[str, Any]:
    found["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(since)}]
    return found


def test_a_submission_that_was_never_completed_goes_after_an_hour() -> None:
    """A laptop that was closed while submitting must not leave a job that waits for ever."""
    unborn = workflow(suspend=True)
    del unborn["metadata"]["annotations"][contract.ANNOTATION_RELEASED]
    assert sweep(unborn, [], NOW) == [DeleteJob("j", "its submission was not completed")]
    unborn["metadata"]["creationTimestamp"] = at(-HOUR + 60)
    assert sweep(unborn, [], NOW) == []


def test_a_halted_job_is_left_alone_however_long() -> None:
    """Halted jobs look much like unborn ones, and are somebody's work."""
    assert sweep(workflow(suspend=True), [], NOW + 1e8) == []
    halted = workflow(attempts("checkpoint", ("Pending", PULL, -9000)), suspend=True)
    del halted["metadata"]["annotations"][contract.ANNOTATION_RELEASED]
    assert sweep(halted, [], NOW) == []


def test_pods_that_wait_go_with_a_halt_that_no_helper_hears_of() -> None:
    """Halted right after a resume: Argo starts no helper any more, but its pods would start once there is room."""
    halted = workflow(
        attempts("checkpoint", ("Failed", "", -700)) | attempts("learner", ("Pending", BUSY, -9)), suspend=True
    )
    going = pod("learner", "Pending", number=1, deletionTimestamp=at(-1))
    pods = [pod("learner", "Pending"), going, pod("learner", "Running", number=2)]
    assert sweep(halted, pods, NOW) == [DeletePod("j-learner-learner0", "the job is halted")]
    assert sweep(halted, [*pods, pod("checkpoint")], NOW) == []


def test_a_helper_that_can_never_start_ends_the_job_for_that_reason() -> None:
    """Nobody inside the job is there to do it."""
    job = workflow(attempts("checkpoint", ("Pending", PULL, -700)))
    (action,) = sweep(job, [scheduled(pod("checkpoint", "Pending"), -650)], NOW)
    assert isinstance(action, StopJob)
    assert action.why == f"could not start within start_timeout (600 s): {PULL}"
    assert sweep(job, [scheduled(pod("checkpoint", "Pending"), -550)], NOW) == []


def test_the_time_of_waiting_for_room_is_not_counted() -> None:
    """Two hours in the queue, then an image that is late by a minute: that is no reason to end a job."""
    job = workflow(attempts("checkpoint", ("Pending", BUSY, -7000)))
    assert sweep(job, [pod("checkpoint", "Pending")], NOW) == []
    job = workflow(attempts("checkpoint", ("Pending", PULL, -7000)))
    assert sweep(job, [scheduled(pod("checkpoint", "Pending"), -60)], NOW) == []


def test_a_job_whose_helper_runs_is_the_helpers() -> None:
    """The helper knows more: two that end a job at once would garble why."""
    nodes = {**attempts("checkpoint", ("Running", "", -9000)), **attempts("learner", ("Pending", PULL, -9000))}
    assert sweep(workflow(nodes), [pod("checkpoint"), pod("learner", "Pending")], NOW) == []
    (action,) = sweep(workflow(nodes), [pod("checkpoint", "Failed"), pod("learner", "Pending")], NOW)
    assert isinstance(action, StopJob)
    assert not helper_runs([pod("checkpoint", deletionTimestamp=at(0))])


def test_a_pod_that_the_cluster_refuses_again_and_again_is_noticed() -> None:
    """Such a pod is never Pending: Argo makes a new attempt every few seconds, for ever."""
    tries = [("Error", REFUSED, -700.0 + 5 * n) for n in range(100)]
    (action,) = sweep(workflow(attempts("checkpoint", *tries)), [], NOW)
    assert isinstance(action, StopJob)
    assert "violates PodSecurity" in action.why
    fresh = [("Failed", "main: Error (exit code 75)", -9000.0), *(("Error", REFUSED, -300.0 + n) for n in range(9))]
    assert sweep(workflow(attempts("checkpoint", *fresh)), [], NOW) == []
    again = [*tries, ("Running", "", -5.0)]
    assert sweep(workflow(attempts("checkpoint", *again)), [], NOW) == []


def test_what_only_events_tell_of_counts_too() -> None:
    """A volume that can't be mounted shows as nothing but PodInitializing."""
    event = {
        "type": "Warning", "reason": "FailedMount", "message": 'secret "j" not found',
        "involvedObject": {"uid": "j-checkpoint-checkpoint0"}, "lastTimestamp": at(-5),
    }  # fmt: skip
    job = workflow(attempts("checkpoint", ("Pending", "PodInitializing", -900)))
    pods = [scheduled(pod("checkpoint", "Pending"), -900)]
    assert sweep(job, pods, NOW) == []
    (action,) = sweep(job, pods, NOW, [event])
    assert isinstance(action, StopJob)
    assert action.why.endswith('FailedMount: secret "j" not found')


def test_large_jobs_are_read_where_argo_has_packed_their_nodes() -> None:
    """Above 1 MB of status, the nodes are not where they were."""
    job = workflow(attempts("checkpoint", ("Pending", PULL, -7000)))
    nodes = job["status"].pop("nodes")
    job["status"]["compressedNodes"] = base64.b64encode(gzip.compress(json.dumps(nodes).encode())).decode()
    assert [type(action) for action in sweep(job, [], NOW)] == [StopJob]


@pytest.mark.parametrize("role", ["checkpoint", "store-results", "store-after-failure", "learner"])
def test_a_pod_of_a_node_that_is_gone_is_taken_from_it(role: str) -> None:
    """It stays Terminating for ever, and Argo waits for it for ever."""
    job = workflow(attempts(role, ("Running", "", -9000)))
    dead = pod(role, deletionTimestamp=at(-130))
    assert sweep(job, [dead], NOW) == [DeletePod(f"j-{role}-{role}0", "it does not end: its node is gone", force=True)]
    assert sweep(job, [pod(role, deletionTimestamp=at(-100))], NOW) == []
    assert sweep(job, [pod("learner", deletionTimestamp=at(-9000)), pod("checkpoint")], NOW) == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Error"])
def test_nothing_is_done_about_a_job_that_has_ended(phase: str) -> None:
    """Its words are its own."""
    job = workflow(attempts("checkpoint", ("Pending", PULL, -7000)))
    job["status"]["phase"] = phase
    assert sweep(job, [pod("checkpoint", deletionTimestamp=at(-9000))], NOW) == []


def test_what_has_begun_is_stored_and_what_has_not_ends_at_once() -> None:
    """Where the image of the steps is missing, storing the results can't start either."""
    pending = attempts("checkpoint", ("Pending", PULL, -7000))
    (action,) = sweep(workflow({**pending, **attempts("download", ("Pending", PULL, -7000))}), [], NOW)
    assert isinstance(action, StopJob)
    assert action.at_once
    (action,) = sweep(workflow({**pending, **attempts("download", ("Succeeded", "", -7000))}), [], NOW)
    assert isinstance(action, StopJob)
    assert not action.at_once


def test_a_stopped_job_whose_results_cannot_be_stored_ends_all_the_same() -> None:
    """Argo would wait for the exit handler's pod for ever; why the job was stopped stays the reason."""
    nodes = attempts("store-after-failure", ("Pending", PULL, -310))
    job = workflow(nodes, shutdown="Stop")
    job["metadata"]["annotations"][contract.ANNOTATION_REASON] = "learner 1 exited with code 3"
    (action,) = sweep(job, [], NOW)
    why = f"learner 1 exited with code 3; results could not be stored: {PULL}"
    assert action == StopJob("j", why, at_once=True)
    assert worth_a_look(job, NOW)
    assert sweep(job, [], NOW - 60) == []
    assert sweep(workflow(nodes, shutdown="Terminate"), [], NOW) == []


def test_a_job_without_the_annotation_has_an_hour() -> None:
    """A Workflow that somebody made by hand has no less time than others."""
    for text in (None, "soon"):
        job = workflow(attempts("checkpoint", ("Pending", PULL, -HOUR + 60)))
        del job["metadata"]["annotations"][contract.ANNOTATION_START_TIMEOUT]
        if text is not None:
            job["metadata"]["annotations"][contract.ANNOTATION_START_TIMEOUT] = text
        assert sweep(job, [], NOW) == []
        assert [type(action) for action in sweep(job, [], NOW + 120)] == [StopJob]


def test_only_jobs_that_wait_for_long_are_looked_at_closely() -> None:
    """`ffdl list` of a thousand jobs that are fine asks for none of their pods."""
    assert not worth_a_look(workflow(attempts("learner", ("Running", "", -9000))), NOW)
    assert not worth_a_look(workflow(attempts("learner", ("Pending", "PodInitializing", -500))), NOW)
    assert worth_a_look(workflow(attempts("learner", ("Pending", "PodInitializing", -700))), NOW)
    assert worth_a_look(workflow(attempts("learner", *[("Error", REFUSED, -700.0 + n) for n in range(9)])), NOW)
    assert not worth_a_look(workflow(attempts("learner", ("Pending", PULL, -700)), suspend=True), NOW)


def test_records_go_when_their_time_is_over_and_never_before_their_job() -> None:
    """A job may run for longer than records are kept; its record is how its results are found."""
    labels = {contract.LABEL_JOB: "j"}
    record = {"metadata": {"name": "j-record", "labels": labels, "creationTimestamp": at(-1000)}}
    assert sweep_record(record, False, None, NOW, ttl=900) == [DeleteRecord("j", "its time is over")]
    assert sweep_record(record, True, None, NOW, ttl=900) == []
    assert sweep_record(record, False, NOW - 500, NOW, ttl=900) == []
    assert sweep_record(record, False, None, NOW, ttl=1100) == []


def test_a_carrier_whose_command_was_killed_does_not_stay() -> None:
    """They hold the results store mounted."""
    assert [type(action) for action in sweep_carrier(pod("carrier", creationTimestamp=at(-8 * HOUR)), NOW)] == [
        DeletePod
    ]
    assert sweep_carrier(pod("carrier", creationTimestamp=at(-6 * HOUR)), NOW) == []  # a long download
