"""A field ignored in silence is a promise broken: each is executed, named as without effect, or refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ffdl.engines.local.operator import invalid, unsupported, without_effect


def _put(workflow: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    workflow = copy.deepcopy(workflow)
    *holders, last = path.split("/")
    place: Any = workflow["spec"]
    for holder in holders:
        place = place[int(holder)] if holder.isdigit() else place.setdefault(holder, {})
    place[int(last) if last.isdigit() else last] = value
    return workflow


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("templates/1/script", {"source": "x"}, "spec.templates[1].script"),
        ("templates/1/suspend", {}, "spec.templates[1].suspend"),
        ("templates/1/daemon", True, "spec.templates[1].daemon"),
        ("templates/1/sidecars", [{"name": "s"}], "spec.templates[1].sidecars"),
        ("templates/1/timeout", "5s", "spec.templates[1].timeout"),
        ("templates/1/inputs/artifacts", [{"name": "a"}], "spec.templates[1].inputs.artifacts"),
        ("templates/1/outputs", {"artifacts": [{"name": "a"}]}, "spec.templates[1].outputs.artifacts"),
        ("templates/1/container/livenessProbe", {"exec": {}}, "spec.templates[1].container.livenessProbe"),
        ("templates/1/container/env", [{"valueFrom": {"resourceFieldRef": {"a": 1}}}], "valueFrom.resourceFieldRef"),
        ("templates/1/container/env", [{"valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}], "fieldPath: spec.x"),
        ("templates/1/container/volumeMounts", [{"name": "v", "subPathExpr": "$(A)"}], "volumeMounts[0].subPathExpr"),
        ("templates/1/retryStrategy/retryPolicy", "OnTransientError", "retryPolicy: OnTransientError"),
        ("templates/1/podSpecPatch", '{"hostname":"a","containers":[{"name":"main"}]}', "podSpecPatch.containers"),
        ("templates/1/podSpecPatch", "[", "podSpecPatch: is neither"),
        ("templates/2/resource/action", "delete", "spec.templates[2].resource.action: delete"),
        ("templates/2/resource/successCondition", "x == 1", "spec.templates[2].resource.successCondition"),
        ("templates/0/dag/tasks/0/hooks", {"exit": {"template": "x"}}, "spec.templates[0].dag.tasks[0].hooks"),
        ("templates/0/dag/tasks/0/templateRef", {"name": "x"}, "tasks[0].templateRef"),
        ("volumes", [{"name": "v", "nfs": {"server": "x"}}], "spec.volumes[0].nfs"),
        ("hooks", {"running": {"template": "x"}}, "spec.hooks"),
        ("workflowTemplateRef", {"name": "x"}, "spec.workflowTemplateRef"),
        ("synchronization", {"mutexes": [{"name": "x"}]}, "spec.synchronization"),
        ("aFieldOfTheFuture", 1, "spec.aFieldOfTheFuture"),
        ("templates/1", "text", "spec.templates[1]: should be a mapping"),
        ("volumes", {"name": "v"}, "spec.volumes: should be a list"),
    ],
)  # fmt: skip
def test_refused_by_name(make: Any, machine: Any, path: str, value: Any, named: str) -> None:
    """The path is in the message, so that the user finds the line; and nothing of such a Workflow runs."""
    workflow = _put(make.job(), path, value)
    problems = unsupported(workflow)
    assert len(problems) == 1
    assert named in problems[0]
    if isinstance(value, (dict, str)) and path == "templates/1":
        return
    run = machine(workflow).go()
    assert run.phase == "Failed"
    assert run.workflow["status"]["message"] == f"invalid spec: {problems[0]}"
    assert run.started == []


def test_without_effect_is_said_with_the_reason(make: Any) -> None:
    """`ffdl lint` can tell a user that a toleration does nothing on one machine."""
    workflow = make.job(podGC={"strategy": "OnPodCompletion"}, tolerations=[{"key": "x"}])
    assert unsupported(workflow) == []
    said = without_effect(workflow)
    assert [line.partition(":")[0] for line in said] == ["spec.podGC", "spec.tolerations"]
    assert all(len(line.partition(": ")[2]) > 10 for line in said)


def test_empty_values_are_no_fields(make: Any) -> None:
    """Tools write `sidecars: []` and `daemon: false`; that asks for nothing."""
    workflow = _put(_put(make.job(), "templates/1/sidecars", []), "templates/1/daemon", False)
    assert unsupported(workflow) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("entrypoint", "nowhere", "template name 'nowhere' undefined"),
        ("onExit", "nowhere", "template name 'nowhere' undefined"),
        ("templates/0/dag/tasks/0/template", "nowhere", "tasks.download template name 'nowhere' undefined"),
        ("templates/0/dag/tasks/3/depends", "downlaod", "sorting failed: invalid dependency downlaod"),
        ("templates/0/dag/tasks/3/depends", "download.Done", "task result 'Done' for task 'download' is invalid"),
        ("templates/0/dag/tasks/3/depends", "download.AllFailed", "uses an items-based condition"),
        ("templates/0/dag/tasks/3/depends", "download &&", "unexpected end of expression"),
        ("templates/0/dag/tasks/0/depends", "learner", "cycle detected: download->learner->download"),
        ("templates/0/dag/tasks/4/name", "onExit", "exit handler"),
        ("templates/0/dag/tasks/3/arguments", {"parameters": []}, "inputs.parameters.index was not supplied"),
        ("templates/0/dag/tasks/3/withItems", [1], "only one of withItems"),
        ("templates/1/container/args", ["{{inputs.parameters.x}}"], "failed to resolve {{inputs.parameters.x}}"),
        ("templates/1/container/args", ["{{tasks.learner.status}}"], "failed to resolve {{tasks.learner.status}}"),
        ("templates/1/container/args", ["{{workflow.parameters.x}}"], "failed to resolve {{workflow.parameters.x}}"),
        ("templates/1/container/command", [], "command may not be empty"),
        ("templates/1/container/image", "", "image may not be empty"),
        ("templates/1/container/volumeMounts", [{"name": "v", "mountPath": "/v"}], "volume 'v' not found"),
        ("templates/1/retryStrategy/expression", "asInt(lastRetry.code) == 1", "unknown name lastRetry.code"),
        ("templates/1/retryStrategy/expression", "asInt(", "unexpected end"),
        ("templates/1/retryStrategy/limit", "many", "'many' cannot be resolved to an int"),
        ("templates/1/retryStrategy/backoff/duration", "soon", "unable to parse soon as a duration"),
        ("templates/1/retryStrategy/backoff/factor", "x", "cannot be resolved to an int"),
        ("templates/1/steps", [], "multiple template types specified"),
        ("templates/1/name", "learner", "'learner' is not unique"),
        ("templates/1/outputs", {"parameters": [{"name": "o"}]}, "does not have valueFrom or value"),
        ("arguments", {"parameters": [{"name": "o"}]}, "spec.arguments.o.valueFrom is required"),
        ("templates/6/steps/0/0/name", "a b", "'a b' is invalid"),
    ],
)  # fmt: skip
def test_invalid_specs_fail_before_anything_runs(make: Any, machine: Any, path: str, value: Any, says: str) -> None:
    """Argo fails a Workflow whose references lead nowhere at once; hours later would be too late."""
    workflow = make.job()
    workflow = _put(workflow, path, value)
    assert unsupported(workflow) == []
    problems = invalid(workflow)
    assert any(says in problem for problem in problems), problems
    run = machine(workflow).go(10)
    assert run.phase == "Failed"
    assert run.workflow["status"]["message"].startswith("invalid spec: ")
    assert run.started == []


def test_names_are_checked(make: Any) -> None:
    """Pod and node names are made of the Workflow's; one that is too long is refused as Argo does."""
    workflow = make.job()
    workflow["metadata"] = {"name": "x" * 64}
    assert "must not be more than 63 characters long" in invalid(workflow)[0]
    workflow["metadata"] = {}
    assert invalid(workflow) == ["metadata.name is required"]


def test_no_workflow_at_all(machine: Any) -> None:
    """Whatever is submitted, the engine answers instead of crashing, also when it looks a second time."""
    for spec in ({}, {"entrypoint": "a"}, {"entrypoint": "a", "templates": []}):
        run = machine({"kind": "Workflow", "metadata": {"name": "wf"}, "spec": spec}).go(10)
        assert run.phase == "Failed"


def test_a_job_is_supported_whole(make: Any) -> None:
    """The compiler's own Workflows must not be refused."""
    assert unsupported(make.job()) == []
    assert invalid(make.job()) == []
