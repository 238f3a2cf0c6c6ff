"""What is tried again, when, and what is final: learned from a real cluster, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from ffdl.engines.local.pod import PodObservation

OUTPUT = {"parameters": [{"name": "more", "valueFrom": {"path": "/tmp/more", "default": "[]"}}]}


def _failed(code: int | None, message: str) -> PodObservation:
    return PodObservation("Failed", code, message)


LOST, KILLED, OOM = "pod deleted", "main: Error (exit code 137)", "main: OOMKilled (exit code 137)"
LOW, INIT = "The node was low on resource", "agent: Error (exit code 1)"


@pytest.mark.parametrize(
    ("observed", "phase", "exit_code", "message", "again"),
    [
        (PodObservation("Error", message=LOST), "Error", None, LOST, True),
        (PodObservation("Error", -1), "Error", None, LOST, True),
        (_failed(137, KILLED), "Failed", "137", KILLED, True),
        (_failed(137, OOM), "Failed", "137", OOM, False),
        (_failed(None, LOW), "Failed", None, LOW, True),
        (_failed(-1, ""), "Failed", None, None, True),
        (_failed(None, INIT), "Failed", None, INIT, True),
        (_failed(3, ""), "Failed", "3", "main: Error (exit code 3)", False),
        (_failed(75, ""), "Failed", "75", "main: Error (exit code 75)", True),
        (_failed(70, ""), "Failed", "70", "main: Error (exit code 70)", False),
        (_failed(143, ""), "Failed", "143", "main: Error (exit code 143)", True),
        (PodObservation("Succeeded", 0), "Succeeded", "0", None, None),
    ],
)
def test_the_table(
    make: Any,
    machine: Any,
    observed: PodObservation,
    phase: str,
    exit_code: str | None,
    message: str | None,
    again: bool | None,
) -> None:
    """Infrastructure's ends are tried again, the user's are final, and an out-of-memory is the user's."""
    run = machine(make.workflow(make.leaf("main", retry=True))).go()
    (pod,) = run.started
    run.pods[pod] = observed
    run.go()
    attempt, retry = run.node("(0)"), run.node("")
    assert (attempt["phase"], attempt.get("message")) == (phase, message)
    assert (attempt.get("outputs") or {}).get("exitCode") == exit_code
    if again is None:
        assert (retry["phase"], run.phase) == ("Succeeded", "Succeeded")
    elif again:
        assert (retry["phase"], retry["message"]) == ("Running", "Backoff for 5 seconds")
        assert len(run.started) == 1
        run.go(6)
        assert len(run.started) == 2
        assert "message" not in run.node("")
    else:
        assert (retry["phase"], retry["message"]) == (phase, "retryStrategy.expression evaluated to false")
        assert run.phase == "Failed"


def test_output_of_a_failed_attempt_is_the_default(make: Any, machine: Any) -> None:
    """A helper that halts hands out nothing; the one after it does, and its word counts."""
    run = machine(make.workflow(make.leaf("main", retry=True, outputs=OUTPUT))).go()
    run.end("wf(0)", 75)
    assert run.node("(0)")["outputs"] == {
        "exitCode": "75",
        "parameters": [{"name": "more", "valueFrom": {"path": "/tmp/more", "default": "[]"}, "value": "[]"}],
    }
    run.go(6)
    run.end("wf(1)", 0, more="[4,5]")
    assert run.node("")["outputs"]["parameters"][0]["value"] == "[4,5]"


def test_output_without_default_must_be_written(make: Any, machine: Any) -> None:
    """A step that forgot its output must not let the next one start with nothing."""
    outputs = {"parameters": [{"name": "o", "valueFrom": {"path": "/o"}}]}
    run = machine(make.workflow(make.leaf("main", outputs=outputs))).go()
    run.end("wf", 0)
    assert run.phase == "Error"
    assert "'o'" in run.workflow["status"]["message"]


def test_backoff_counts_from_the_end_of_the_attempt(make: Any, machine: Any) -> None:
    """A learner that trained for a day and was evicted waits 5 s, not less, and the runner knows when to wake up."""
    run = machine(make.workflow(make.leaf("main", retry=True))).go(86400)
    end = run.now
    run.end("wf(0)", 75)
    assert run.last.wake == end + 5
    run.go(4)
    assert len(run.started) == 1
    run.go(1)
    assert len(run.started) == 2


def test_backoff_grows_and_is_capped(make: Any, machine: Any) -> None:
    """`factor` and `cap` as in Argo: 2, 4, 5, 5 seconds."""
    strategy = {"limit": 10, "backoff": {"duration": "2", "factor": "2", "cap": "5s"}}
    run = machine(make.workflow(make.leaf("main", retry=strategy))).go()
    waits = []
    for attempt in range(4):
        run.end(f"wf({attempt})", 1)
        waits.append(run.last.wake - run.now)
        run.go(waits[-1])
    assert waits == [2, 4, 5, 5]


def test_without_a_limit_there_is_no_backoff(make: Any, machine: Any) -> None:
    """Seen on Argo: with no `limit`, `backoff` is ignored. Workflows must not behave differently here."""
    run = machine(make.workflow(make.leaf("main", retry={"retryPolicy": "Always", "backoff": {"duration": "1h"}}))).go()
    run.end("wf(0)", 1)
    assert run.running() == ["wf(1)"]


def test_limit(make: Any, machine: Any) -> None:
    """`limit: 2` is three attempts, and the node says why there is no fourth."""
    run = machine(make.workflow(make.leaf("main", retry={"limit": 2}))).go()
    for attempt in range(3):
        run.end(f"wf({attempt})", 9)
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "No more retries left")
    assert len(run.started) == 3


@pytest.mark.parametrize(
    ("policy", "expression", "phase", "again"),
    [
        ("Always", "", "Failed", True),
        ("Always", "", "Error", True),
        ("OnFailure", "", "Failed", True),
        ("OnFailure", "", "Error", False),
        ("OnError", "", "Failed", False),
        ("OnError", "", "Error", True),
        ("", "", "Failed", True),
        ("", "", "Error", False),
        ("", "true", "Error", True),
        ("OnFailure", "true", "Error", False),
    ],
)
def test_policies(make: Any, machine: Any, policy: str, expression: str, phase: str, again: bool) -> None:
    """An expression alone decides alone; with neither, only failures are tried again."""
    given = {"limit": 5, "retryPolicy": policy, "expression": expression}
    strategy = {key: value for key, value in given.items() if value}
    run = machine(make.workflow(make.leaf("main", retry=strategy))).go()
    run.end("wf(0)", 1, phase=phase)
    assert (run.phase == "Running") is again


@pytest.mark.parametrize(
    ("message", "again"),
    [
        ("dial tcp 10.0.0.1:443: i/o timeout", True),
        ("etcdserver: leader changed", True),
        ("main: Error (exit code 1)", False),
    ],
)
@pytest.mark.parametrize("phase", ["Failed", "Error"])
def test_transient_errors(make: Any, machine: Any, phase: str, message: str, again: bool) -> None:
    """`OnTransientError` goes by what the message says, as Argo does."""
    run = machine(make.workflow(make.leaf("main", retry={"limit": 5, "retryPolicy": "OnTransientError"}))).go()
    run.end("wf(0)", 1, phase=phase, message=message)
    assert (run.phase == "Running") is again


def test_max_duration(make: Any, machine: Any) -> None:
    """Tries stop when the next one would begin too late."""
    strategy = {"limit": 10, "backoff": {"duration": "4s", "factor": 2, "maxDuration": "10s"}}
    run = machine(make.workflow(make.leaf("main", retry=strategy))).go(1)
    run.end("wf(0)", 1)
    run.go(5)
    run.end("wf(1)", 1)
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "Backoff would exceed max duration limit")


def test_attempts_know_their_number_and_the_last_end(make: Any, machine: Any) -> None:
    """The agent waits longer from attempt to attempt: it must be told which one it is, also when asked for again."""
    env = [{"name": "E", "value": "{{retries}} {{lastRetry.exitCode}} {{lastRetry.status}} {{pod.name}} {{node.name}}"}]
    leaf = make.leaf("main", retry=True)
    leaf["container"]["env"] = env
    run = machine(make.workflow(leaf)).go()
    first = run.started[0]
    assert run.request("main")["container"]["env"][0]["value"] == f"0 0  {first} wf"
    run.end("wf(0)", 75)
    run.go(6)
    again = run.started[1]
    expected = f"1 75 Failed {again} wf"
    assert run.request("main")["container"]["env"][0]["value"] == expected
    del run.pods[again]
    (request,) = run.decide().start
    assert request.pod_name == again
    assert request.template["container"]["env"][0]["value"] == expected


def test_a_clock_set_back_delays_nothing(make: Any, machine: Any) -> None:
    """Set back by a day, the clock must not hold a retry for a day, nor let a node end before it began."""
    run = machine(make.workflow(make.leaf("main", retry=True))).go(100)
    run.end("wf(0)", 75)
    run.now -= 86400
    run.go()
    assert run.running() == ["wf(1)"]
    run.end("wf(1)", 0)
    node = run.node("(1)")
    assert node["finishedAt"] >= node["startedAt"]


def test_retries_of_a_whole_dag(make: Any, machine: Any) -> None:
    """A strategy on a DAG runs all of it again, as new nodes."""
    workflow = make.workflow(
        make.dag("main", make.task("a"), retryStrategy={"limit": 1}),
        make.leaf("a"),
    )
    run = machine(workflow).go()
    run.end("a", 1)
    assert run.node("(0)")["phase"] == "Failed"
    run.end("a", 0)
    assert run.phase == "Succeeded"
    assert {n["name"]: n["type"] for n in run.nodes()} == {
        "wf": "Retry", "wf(0)": "DAG", "wf(0).a": "Pod", "wf(1)": "DAG", "wf(1).a": "Pod",
    }  # fmt: skip


def test_a_wrong_expression_is_an_error_not_a_verdict(make: Any, machine: Any) -> None:
    """Comparing the exit code, a string, with a number: the message names the mistake."""
    strategy = {"limit": 3, "expression": "lastRetry.exitCode > 70"}
    run = machine(make.workflow(make.leaf("main", retry=strategy))).go()
    run.end("wf(0)", 75)
    assert run.phase == "Error"
    assert "invalid operation: string > int" in run.workflow["status"]["message"]


def test_an_attempt_that_cannot_begin_is_not_retried_without_end(make: Any, machine: Any) -> None:
    """A patch that is no JSON once its parameter is in: each pass tries once at most."""
    leaf = make.leaf("main", "x", retry={"retryPolicy": "Always"}, podSpecPatch="{{inputs.parameters.x}}")
    workflow = make.workflow(make.dag("d", make.task("main", given={"x": "a: b: c"})), leaf)
    run = machine(workflow)
    run.write(run.decide())
    assert [n["phase"] for n in run.nodes("Pod")] == ["Error"]
    assert run.last.wake is not None
