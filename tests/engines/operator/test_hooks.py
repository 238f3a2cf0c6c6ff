"""Lifecycle hooks: what runs beside a task, a step or the Workflow, and what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from ffdl.engines.local.pod import PodObservation


def _both(make: Any, task: dict[str, Any], *others: dict[str, Any]) -> list[tuple[str, Any]]:
    """The same task in a DAG and in steps, with a follower `b`; and how its node is called."""
    dag = make.dag("main", task, make.task("b", "leaf", "a"))
    steps = {"name": "main", "steps": [[task], [make.task("b", "leaf")]]}
    leaves = [make.leaf("leaf"), make.leaf("hook", "x"), *others]
    return [("tasks", make.workflow(dag, *leaves)), ("steps", make.workflow(steps, *leaves))]


def _name(kind: str, name: str) -> str:
    return f".{name}" if kind == "tasks" else f"[{0 if name[0] == 'a' else 1}].{name}"


@pytest.mark.parametrize("key", ["hooks", "onExit"])
def test_after_a_task(make: Any, machine: Any, key: str) -> None:
    """The exit hook runs whatever happened, once; what follows waits for it; its failure changes nothing."""
    value: Any = {"exit": {"template": "bye"}} if key == "hooks" else "bye"
    for kind, workflow in _both(make, make.task("a", "leaf", **{key: value}), make.leaf("bye")):
        run = machine(workflow).go()
        run.end("a")
        assert run.running() == ["a.onExit"]
        hook = run.node(_name(kind, "a.onExit"))
        assert (hook["nodeFlag"], hook["boundaryID"]) == ({"hooked": True}, "wf")
        assert run.node(_name(kind, "a"))["children"] == [hook["id"]]
        run.end("a.onExit", 1)
        assert run.running() == ["b"]
        run.end("b")
        assert run.phase == "Succeeded"
        run = machine(workflow).go()
        run.end("a", 1)
        assert run.running() == ["a.onExit"]
        run.end("a.onExit")
        assert (run.phase, len(run.started)) == ("Failed", 2)


def test_an_exit_hook_is_told_how_it_went(make: Any, machine: Any) -> None:
    """Status and outputs of its task, which are known only then; a condition may keep it from running."""
    outputs = {"parameters": [{"name": "o", "valueFrom": {"path": "/o", "default": "none"}}]}
    for kind in ("tasks", "steps"):
        said = f"{{{{{kind}.a.status}}}} {{{{{kind}.a.outputs.parameters.o}}}}"
        hook = {"template": "hook", "arguments": {"parameters": [{"name": "x", "value": said}]}}
        for expression, runs in ((None, True), (f"{kind}.a.status == 'Failed'", False)):
            hooks = {"exit": {**hook, "expression": expression} if expression else hook}
            found = dict(_both(make, make.task("a", "out", hooks=hooks), make.leaf("out", outputs=outputs)))
            run = machine(found[kind]).go()
            run.end("a", o="made")
            assert run.running() == (["a.onExit"] if runs else ["b"])
            if runs:
                assert run.request("hook")["inputs"]["parameters"][0]["value"] == "Succeeded made"


def test_a_retried_task_has_one_exit_hook(make: Any, machine: Any) -> None:
    """After the last attempt, with its outputs, beneath the Retry node."""
    outputs = {"parameters": [{"name": "o", "valueFrom": {"path": "/o"}}]}
    hook = {
        "template": "hook",
        "arguments": {"parameters": [{"name": "x", "value": "{{tasks.a.outputs.parameters.o}}"}]},
    }
    task = make.task("a", "try", hooks={"exit": hook})
    leaf = make.leaf("try", retry={"limit": 1}, outputs=outputs)
    run = machine(dict(_both(make, task, leaf))["tasks"]).go()
    run.end("a(0)", 1)
    run.end("a(1)", 0, o="second")
    assert run.running() == ["a.onExit"]
    assert run.request("hook")["inputs"]["parameters"][0]["value"] == "second"
    run.end("a.onExit")
    run.end("b")
    names = {n["id"]: n["displayName"] for n in run.nodes()}
    assert [names[child] for child in run.node(".a")["children"]] == ["a(0)", "a(1)", "a.onExit"]
    assert run.phase == "Succeeded"


def test_beside_a_running_task(make: Any, machine: Any) -> None:
    """A hook with an expression starts when that holds; the task's followers wait for its end, too."""
    for kind in ("tasks", "steps"):
        hooks = {
            "running": {"template": "bye", "expression": f'{kind}.a.status == "Running"'},
            "failed": {"template": "bye", "expression": f'{kind}["a"].status == "Failed"'},
        }
        run = machine(dict(_both(make, make.task("a", "leaf", hooks=hooks), make.leaf("bye")))[kind]).go()
        assert run.running() == ["a", "a.hooks.running"]
        run.end("a")
        assert run.running() == ["a.hooks.running"]
        run.end("a.hooks.running")
        run.end("b")
        assert run.phase == "Succeeded"


def test_hooks_of_loops(make: Any, machine: Any) -> None:
    """Each run of a loop has its exit hook, and a DAG's loop as a whole one more."""
    task = make.task("a", "leaf", withItems=[1, 2], hooks={"exit": {"template": "bye"}})
    for kind, workflow in _both(make, task, make.leaf("bye")):
        run = machine(workflow).go()
        run.end("a(0:1)")
        assert run.running() == ["a(0:1).onExit", "a(1:2)"]
        run.end("a(1:2)")
        run.end("a(0:1).onExit")
        run.end("a(1:2).onExit")
        if kind == "tasks":
            run.end("a.onExit")
        run.end("b")
        assert run.phase == "Succeeded"


def test_skipped_tasks_have_no_exit(make: Any, machine: Any) -> None:
    """What didn't run didn't end."""
    for _, workflow in _both(make, make.task("a", "leaf", when="x == y", onExit="leaf")):
        assert machine(workflow).go().running() == ["b"]


def test_of_the_workflow(make: Any, machine: Any) -> None:
    """`running` beside it, `failed` once it is known how it went, `exit` after them; they hang beneath the root."""
    hooks = {
        "running": {"template": "bye", "expression": 'workflow.status == "Running"'},
        "failed": {"template": "bye", "expression": 'workflow.status == "Failed"'},
        "exit": {"template": "told", "arguments": {"parameters": [{"name": "x", "value": "{{workflow.status}}"}]}},
    }
    main = make.dag("main", make.task("a", "leaf"))
    run = machine(make.workflow(main, make.leaf("leaf"), make.leaf("bye"), make.leaf("told", "x"), hooks=hooks)).go()
    assert run.running() == ["a", "wf.hooks.running"]
    run.end("a", 1)
    assert (run.node("")["phase"], run.running()) == ("Running", ["wf.hooks.running"]), (
        "a DAG waits for what is beneath"
    )
    run.end("wf.hooks.running")
    assert run.running() == ["wf.hooks.failed"]
    run.end("wf.hooks.failed")
    assert run.running() == ["wf.onExit"]
    assert run.request("told")["inputs"]["parameters"][0]["value"] == "Failed"
    run.end("wf.onExit")
    assert run.phase == "Failed"
    names = {n["id"]: n["displayName"] for n in run.nodes()}
    assert [names[child] for child in run.node("")["children"]] == ["a", "wf.hooks.running", "wf.hooks.failed"]


def test_the_root_hears_of_a_hooks_end(make: Any, machine: Any) -> None:
    """A hook that is a DAG and ends together with the last task: the Workflow must not wait for other news."""
    hooks = {"beside": {"template": "inner", "expression": 'workflow.status == "Running"'}}
    inner = make.dag("inner", make.task("q", "leaf"))
    run = machine(make.workflow(make.dag("main", make.task("a", "leaf")), inner, make.leaf("leaf"), hooks=hooks)).go()
    for name in list(run.pods):
        run.pods[name] = PodObservation("Succeeded", 0, finished_at=run.now)
    assert run.go().phase == "Succeeded"


def test_stopped(make: Any, machine: Any) -> None:
    """Stop lets exit hooks of tasks run, the Workflow waits for them; Terminate does not."""
    main = make.dag("main", make.task("a", "leaf", onExit="leaf"))
    run = machine(make.workflow(main, make.leaf("leaf"))).go()
    run.set(shutdown="Stop").go()
    assert (run.phase, run.running()) == ("Running", ["a.onExit"])
    run.end("a.onExit")
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "Stopped with strategy 'Stop'")
    run = machine(make.workflow(main, make.leaf("leaf"))).go()
    run.set(shutdown="Terminate").go()
    assert (run.phase, len(run.started)) == ("Failed", 1)


def test_a_hook_that_cannot_be_judged(make: Any, machine: Any) -> None:
    """An expression about something that isn't there is an error of its task, as in Argo."""
    hooks = {"odd": {"template": "leaf", "expression": 'tasks.a.outputs.parameters.x == "1"'}}
    run = machine(make.workflow(make.dag("main", make.task("a", "leaf", hooks=hooks)), make.leaf("leaf"))).go()
    assert run.phase == "Error"
