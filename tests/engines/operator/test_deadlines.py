"""Time that is up: of the Workflow, of a template, of what never starts."""

from __future__ import annotations

from typing import Any

import pytest

from ffdl.engines.local.pod import PodObservation


def test_of_the_workflow(make: Any, machine: Any) -> None:
    """`activeDeadlineSeconds` ends pods, lets the exit handler run, and the runner is told when to look."""
    run = machine(make.job(activeDeadlineSeconds=60)).go()
    assert run.last.wake == pytest.approx(run.now + 60, abs=0.1)
    run.go(61)
    assert run.node(".download(0)")["message"] == "Step exceeded its deadline"
    assert run.node(".download")["message"] == "retry exceeded workflow deadline 2025-06-15 15:07:40 +0000 UTC"
    assert run.running() == ["store-results(0)"]
    run.end("store-results")
    assert run.phase == "Failed"


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({}, None),
        ({"activeDeadlineSeconds": 20}, 20),
        ({"activeDeadlineSeconds": "{{inputs.parameters.x}}"}, 30),
        ({"timeout": "1m"}, 60),
        ({"timeout": "1m", "activeDeadlineSeconds": 20}, 60),
        ({"timeout": "{{inputs.parameters.x}}s"}, 30),
    ],
)
def test_of_a_template(make: Any, machine: Any, more: Any, seconds: int | None) -> None:
    """Who runs the pod is told for how long; a `timeout` goes before, as in Argo, and counts from the node's start."""
    workflow = make.workflow(
        make.dag("main", make.task("a", "leaf", given={"x": "30"})), make.leaf("leaf", "x", **more)
    )
    run = machine(workflow)
    (request,) = run.decide().start
    assert request.active_deadline == seconds
    run.write(run.decide())
    run.now += 10
    (request,) = run.decide().start
    assert request.active_deadline == (seconds - 10 if "timeout" in more and seconds else seconds)


def test_each_attempt_has_its_own(make: Any, machine: Any) -> None:
    """A timeout is a failure like others: the next attempt gets the whole time again."""
    leaf = make.leaf("main", timeout="30s", retryStrategy={"limit": 1})
    run = machine(make.workflow(leaf)).go(20)
    run.end("wf(0)", 143, message="Pod was active on the node longer than the specified deadline")
    assert [request.active_deadline for request in run.requests] == [30, 30]


def test_a_pod_that_never_starts(make: Any, machine: Any) -> None:
    """`timeout` counts the waiting for room, too; the task says so."""
    for main in (
        make.dag("main", make.task("a", "leaf"), make.task("b", "leaf", "a.Failed")),
        {"name": "main", "steps": [[make.task("a", "leaf")]]},
    ):
        run = machine(make.workflow(main, make.leaf("leaf", timeout="30s"))).go()
        (pod,) = run.started
        run.pods[pod] = PodObservation("Pending", message="QUEUED: 2 of 4 CPUs are free")
        run.go()
        assert run.last.wake == pytest.approx(run.now + 30, abs=0.1)
        run.go(31)
        (node,) = [n for n in run.nodes("Pod") if n["displayName"] == "a"]
        assert (node["phase"], node["message"]) == ("Failed", "timeout")
        assert run.pods[pod].ended
        if "dag" in main:
            assert run.running() == ["b"]
        else:
            assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "timeout")


def test_a_timeout_that_leaves_no_time(make: Any, machine: Any) -> None:
    """Argo starts no pod for a second."""
    run = machine(make.workflow(make.dag("main", make.task("a", "leaf")), make.leaf("leaf", timeout="1s"))).go()
    assert run.node(".a")["message"] == "task 'wf.a' errored: wf.a exceeded its deadline"
    assert (run.phase, run.started) == ("Error", [])


def test_the_longest_of_all_attempts(make: Any, machine: Any) -> None:
    """`maxDuration` ends the attempts after the first; the moment is that of the first's start and the whole span."""
    strategy = {"limit": 5, "backoff": {"duration": "1s", "maxDuration": "1m"}}
    run = machine(make.workflow(make.leaf("main", retry=strategy))).go(20)
    began = run.now - 20
    run.end("wf(0)", 1)
    run.go(1)
    assert [request.deadline for request in run.requests] == [None, began + 60]
    run.go(39)
    run.end("wf(1)", 143)
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "Backoff would exceed max duration limit")
