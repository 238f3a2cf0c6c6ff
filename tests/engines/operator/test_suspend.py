"""Suspend templates: a gate that a person opens, or that opens by itself."""

from __future__ import annotations

from typing import Any

import pytest

from ffdl.engines.local.operator import NotSuspendedError, resume

ANSWER: dict[str, Any] = {"name": "answer", "valueFrom": {"supplied": {}}}


def _gate(make: Any, *outputs: dict[str, Any], inputs: Any = None, given: Any = None, **suspend: Any) -> Any:
    gate: dict[str, Any] = {"name": "gate", "suspend": suspend}
    if outputs:
        gate["outputs"] = {"parameters": list(outputs)}
    if inputs:
        gate["inputs"] = {"parameters": inputs}
    shown = {"x": "{{steps.gate.outputs.parameters.answer}}"} if outputs else {"x": "-"}
    steps = [[make.task("gate", given=given)], [make.task("after", "leaf", given=shown)]]
    return make.workflow({"name": "main", "steps": steps}, gate, make.leaf("leaf", "x"))


def _resume(run: Any, **more: Any) -> None:
    run.workflow = {**run.workflow, "status": resume(run.workflow, run.now, **more)}
    run.go()


@pytest.mark.parametrize(("duration", "seconds"), [("10", 10), (10, 10), ("1m30s", 90), ("0", 0)])
def test_a_gate_opens_when_its_time_has_come(make: Any, machine: Any, duration: Any, seconds: int) -> None:
    """A pause between steps; the runner is told when to look again."""
    run = machine(_gate(make, duration=duration)).go()
    gate = run.node("[0].gate")
    assert (gate["type"], gate["phase"]) == ("Suspend", "Running")
    assert run.last.wake == pytest.approx(run.now + seconds, abs=0.01)
    run.go(seconds + 1)
    assert (run.node("[0].gate")["phase"], run.running()) == ("Succeeded", ["after"])
    run.end("after")
    assert run.workflow["status"]["progress"] == "2/2"


def test_a_gate_without_a_duration_waits_for_somebody(make: Any, machine: Any) -> None:
    """As `argo resume` does: all suspended nodes go on; a second time there is nobody to be told."""
    run = machine(_gate(make)).go(10_000)
    assert (run.phase, run.running()) == ("Running", [])
    _resume(run, message="by me")
    gate = run.node("[0].gate")
    assert (gate["phase"], gate["message"], run.running()) == ("Succeeded", "by me", ["after"])
    with pytest.raises(NotSuspendedError, match="no suspended node"):
        resume(run.workflow, run.now)


def test_outputs_are_supplied(make: Any, machine: Any) -> None:
    """`argo node set` and `resume`: the answer is an output of the node, and of the Workflow where it is to be."""
    run = machine(_gate(make, {**ANSWER, "globalName": "said"}))
    run.go()
    _resume(run, selector="displayName=gate", outputs={"answer": "42"}, phase="")
    assert run.node("[0].gate")["phase"] == "Running"
    _resume(run, selector="displayName=gate,phase!=Pending")
    assert [run.workflow["status"]["progress"], run.node("[0]")["progress"]] == ["1/2", "1/2"]
    assert run.node("[0].gate")["outputs"]["parameters"] == [{"name": "answer", "globalName": "said", "value": "42"}]
    assert run.request("leaf")["inputs"]["parameters"][0]["value"] == "42"
    assert run.workflow["status"]["outputs"]["parameters"] == [{"name": "said", "value": "42"}]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"selector": "displayName=other"}, "no suspended node with displayName=other"),
        ({"selector": "gate"}, "can't understand 'gate'"),
        ({"selector": "displayName=gate", "outputs": {"x": "1"}}, "not expecting output parameter 'x'"),
        ({}, "raw output parameter 'answer' has not been set and does not have a default value"),
    ],
)
def test_what_nobody_waits_for_is_refused(make: Any, machine: Any, more: Any, says: str) -> None:
    """A typing error must not open a gate."""
    run = machine(_gate(make, ANSWER)).go()
    with pytest.raises(NotSuspendedError, match=says):
        resume(run.workflow, run.now, **more)


def test_nobody_answered(make: Any, machine: Any) -> None:
    """The default of the output, else that of the input of the same name, else an error."""
    own = {"name": "answer", "valueFrom": {"supplied": {}, "default": "own"}}
    inputs = [{"name": "answer", "default": "from the input"}]
    for output, declared, value in ((own, None, "own"), (ANSWER, inputs, "from the input")):
        run = machine(_gate(make, output, inputs=declared, duration="5")).go(6)
        assert run.request("leaf")["inputs"]["parameters"][0]["value"] == value
    run = machine(_gate(make, ANSWER, duration="5")).go(6)
    message = "raw output parameter 'answer' has not been set and does not have a default value"
    assert run.node("[0].gate")["message"] == message
    assert run.node("[0]")["message"] == f"step group deemed errored due to child wf[0].gate error: {message}"
    assert run.phase == "Failed"


def test_choices_of_an_input(make: Any, machine: Any) -> None:
    """A value that is a parameter in JSON offers its `enum`, as Argo's forms expect."""
    value = '{"enum": ["yes", "no"]}'
    run = machine(_gate(make, ANSWER, inputs=[{"name": "answer"}], given={"answer": value})).go()
    (shown,) = run.node("[0].gate")["inputs"]["parameters"]
    assert (shown["enum"], shown["default"]) == (["yes", "no"], "yes")


def test_a_duration_nobody_can_read(make: Any, machine: Any) -> None:
    """Known only once its parameter is: the task says so."""
    gate = {
        "name": "gate",
        "inputs": {"parameters": [{"name": "d"}]},
        "suspend": {"duration": "{{inputs.parameters.d}}"},
    }
    main = make.dag("main", make.task("a", "gate", given={"d": "soon"}))
    run = machine(make.workflow(main, gate)).go()
    assert run.node(".a")["message"] == (
        "task 'wf.a' errored: unable to parse soon as a duration: time: invalid duration \"soon\""
    )
    assert run.phase == "Error"


def test_stop_and_deadline_end_the_waiting(make: Any, machine: Any) -> None:
    """A gate nobody opens must not keep a stopped Workflow alive, nor one whose time is up."""
    run = machine(_gate(make)).go()
    run.set(shutdown="Stop").go()
    assert (run.phase, run.node("[0].gate")["message"]) == ("Failed", "Stopped with strategy 'Stop'")
    run = machine({**_gate(make)}).set(activeDeadlineSeconds=30).go(31)
    assert (run.phase, run.node("[0].gate")["message"]) == ("Failed", "Step exceeded its deadline")
