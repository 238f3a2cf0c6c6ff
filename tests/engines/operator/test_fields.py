"""A field ignored in silence is a promise broken: each is executed, named as without effect, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from ffdl.engines.local.operator import invalid, unsupported, without_effect
from tests.engines.operator.editing import put


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("templates/1/sidecars", [{"name": "s", "lifecycle": {"x": 1}}], "spec.templates[1].sidecars[0].lifecycle"),
        ("templates/1/inputs/artifacts", [{"name": "a", "http": {"url": "x"}}], "inputs.artifacts[0].http"),
        ("templates/1/outputs", {"artifacts": [{"s3": {"bucket": "b"}}]}, "outputs.artifacts[0].s3.bucket"),
        ("templates/1/container/livenessProbe", {"exec": {}}, "spec.templates[1].container.livenessProbe"),
        ("templates/1/container/env", [{"valueFrom": {"resourceFieldRef": {"a": 1}}}], "resourceFieldRef.a: unknown"),
        ("templates/1/container/env", [{"valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}], "fieldPath: spec.x"),
        ("templates/1/container/volumeMounts", [{"mountPropagation": "None"}], "volumeMounts[0].mountPropagation"),
        ("templates/1/podSpecPatch", '{"hostname":"a","containers":[{"name":"main"}]}', "podSpecPatch.containers"),
        ("templates/1/podSpecPatch", "[", "podSpecPatch: is neither"),
        ("templates/2/resource/action", "delete", "spec.templates[2].resource.action: delete"),
        ("templates/2/resource/successCondition", "x == 1", "spec.templates[2].resource.successCondition"),
        ("volumes", [{"name": "v", "nfs": {"server": "x"}}], "spec.volumes[0].nfs"),
        ("synchronization", {"mutexes": [{"name": "x"}]}, "spec.synchronization"),
        ("aFieldOfTheFuture", 1, "spec.aFieldOfTheFuture"),
        ("templates/1", "text", "spec.templates[1]: should be a mapping"),
        ("volumes", {"name": "v"}, "spec.volumes: should be a list"),
    ],
)  # fmt: skip
def test_refused_by_name(make: Any, machine: Any, path: str, value: Any, named: str) -> None:
    """The path is in the message, so that the user finds the line; and nothing of such a Workflow runs."""
    workflow = put(make.job(), path, value)
    problems = unsupported(workflow)
    assert len(problems) == 1
    assert named in problems[0]
    if isinstance(value, (dict, str)) and path == "templates/1":
        return
    run = machine(workflow).go()
    assert run.phase == "Failed"
    assert run.workflow["status"]["message"] == f"invalid spec: {problems[0]}"
    assert run.started == []


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("templates/1/container/args", ["{{=1}} {{=sprig.now()}}"], "spec.templates[1].container.args[0]: sprig.now"),
        ("templates/1/container/args", ["{{=now()}}"], "container.args[0]: now"),
        ("templates/1/container/args", ["{{=date('2024-01-01') > 1}}"], "container.args[0]: date"),
        ("templates/1/container/args", ["{{=map([1], sprig.uuidv4())}}"], "container.args[0]: sprig.uuidv4"),
        ("templates/1/container/args", ["{{=foo(1)}}"], "container.args[0]: foo"),
        ("templates/1/container/args", ["{{=jsonpath('[]', '$[?(@.a)]')}}"], "args[0]: jsonpath with a filter"),
        ("templates/1/retryStrategy/expression", "sprig.randInt(1, 5) > 2", "retryStrategy.expression: sprig.randInt"),
        ("hooks", {"a": {"template": "download", "expression": "duration('1s') > 0"}}, "hooks.a.expression: duration"),
    ],
)
def test_functions_are_refused_by_name(make: Any, path: str, value: Any, named: str) -> None:
    """A function that nobody here can run is told before anything runs, not when a step gets to it."""
    problems = unsupported(put(make.job(), path, value))
    assert len(problems) == 1
    assert problems[0].endswith(f"{named}: not executed by the embedded engine")


def test_without_effect_is_said_with_the_reason(make: Any) -> None:
    """`ffdl lint` can tell a user that a toleration does nothing on one machine."""
    workflow = make.job(podGC={"strategy": "OnPodCompletion"}, tolerations=[{"key": "x"}])
    assert unsupported(workflow) == []
    said = without_effect(workflow)
    assert [line.partition(":")[0] for line in said] == ["spec.podGC", "spec.tolerations"]
    assert all(len(line.partition(": ")[2]) > 10 for line in said)


def test_empty_values_are_no_fields(make: Any) -> None:
    """Tools write `sidecars: []` and `daemon: false`; that asks for nothing."""
    workflow = put(put(make.job(), "templates/1/sidecars", []), "templates/1/daemon", False)
    assert unsupported(workflow) == []


def test_a_job_is_supported_whole(make: Any) -> None:
    """The compiler's own Workflows must not be refused."""
    assert unsupported(make.job()) == []
    assert invalid(make.job()) == []
