"""A Workflow that leads nowhere is refused before anything runs: hours later would be too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.engines.local.operator import invalid, problems
from tests.engines.operator.editing import put

CASES = yaml.safe_load(Path(__file__).with_name("validation.yml").read_text(encoding="utf-8"))


def workflow(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "wf"}, "spec": spec}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_as_argo_says_it(case: dict[str, Any]) -> None:
    """What a cluster refuses is refused here, in the same words, and the path leads to the line."""
    found = workflow(case["spec"])
    assert invalid(found)[:1] == ([case["says"]] if "says" in case else [])
    assert [list(path) for path, _ in problems(found)][:1] == ([case["at"]] if "at" in case else [])


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("templates/0/dag/tasks/3/depends", "download &&", "unexpected token EOF"),
        ("templates/0/dag/tasks/4/name", "onExit", "exit handler"),
        ("templates/1/container/command", [], "command may not be empty"),
        ("templates/1/container/volumeMounts", [{"name": "v", "mountPath": "/v"}], "volume 'v' not found"),
        ("templates/1/retryStrategy/expression", "asInt(lastRetry.code) == 1", "unknown name lastRetry.code"),
        ("templates/1/retryStrategy/expression", "asInt(", "unexpected token EOF"),
        ("templates/1/retryStrategy/expression", "retries > 1", "mismatched types string and int"),
        ("templates/1/container/args", ["{{=1 +}}"], "failed to evaluate expression: unexpected token EOF"),
        ("templates/0/dag/tasks/0/when", "a ==", "Invalid 'when' expression 'a ==': Unexpected end of expression"),
        ("templates/0/dag/tasks/0/hooks", {"x": {"template": "download", "expression": "(1"}}, "unexpected token EOF"),
        ("hooks", {"x": {"template": "download", "expression": "1 1"}}, "unexpected token Number"),
        ("templates/0/dag/tasks/3/depends", "download.Failed + download.Failed", "+ (mismatched types"),
        ("templates/1/retryStrategy/limit", "many", "'many' cannot be resolved to an int"),
        ("templates/1/retryStrategy/backoff/duration", "soon", "unable to parse soon as a duration"),
        ("templates/1/retryStrategy/backoff/factor", "x", "cannot be resolved to an int"),
    ],
)  # fmt: skip
def test_what_could_not_go_well(make: Any, machine: Any, path: str, value: Any, says: str) -> None:
    """Argo finds these when it is the step's turn; here nothing is started for it."""
    broken = put(make.job(), path, value)
    found = problems(broken)
    assert len(found) == 1
    assert says in found[0][1]
    run = machine(broken).go(10)
    assert run.phase == "Failed"
    assert run.workflow["status"]["message"].startswith("invalid spec: ")
    assert run.started == []


def test_all_mistakes_are_told_argos_first() -> None:
    """One run of `ffdl lint` shows everything; the engine's own objections come after what a cluster says."""
    main = {"name": "main", "dag": {"tasks": [{"name": "a", "template": "b"}, {"name": "c", "template": "d"}]}}
    broken = workflow({"entrypoint": "main", "templates": [{"name": "b", "container": {"image": "i"}}, main]})
    assert invalid(broken) == [
        "templates.main.tasks.c template name 'd' undefined",
        "templates.main.tasks.a templates.b.container.command may not be empty: "
        "the command of i is not known here, nothing is pulled",
    ]


def test_a_parameter_may_come_later_when_a_file_is_only_looked_at() -> None:
    """`ffdl lint` sees the Workflow before `--param` does."""
    leaf = {"name": "main", "container": {"image": "i", "command": ["c"], "args": ["{{workflow.parameters.p}}"]}}
    open_ = workflow({"entrypoint": "main", "arguments": {"parameters": [{"name": "p"}]}, "templates": [leaf]})
    assert problems(open_, lint=True) == []
    assert problems(open_) != []
    open_["metadata"] = {"generateName": "wf-"}
    assert problems(open_, lint=True) == []


def test_templates_may_call_each_other_very_deep() -> None:
    """A chain of a thousand templates is Argo's to refuse when it runs, not a reason to crash."""
    chain = [{"name": f"t{i}", "steps": [[{"name": "s", "template": f"t{i + 1}"}]]} for i in range(1000)]
    last = {"name": "t1000", "container": {"image": ""}}
    found = problems(workflow({"entrypoint": "t0", "templates": [*chain, last]}))
    assert (("spec", "templates", 1000, "container"), "templates.t1000.container.image may not be empty") in found


def test_names_are_checked(make: Any) -> None:
    """Pod and node names are made of the Workflow's; one that is too long is refused as Argo does."""
    job = make.job()
    job["metadata"] = {"name": "x" * 64}
    assert "must not be more than 63 characters long" in invalid(job)[0]
    job["metadata"] = {}
    assert invalid(job) == ["metadata.name is required"]


def test_no_workflow_at_all(machine: Any) -> None:
    """Whatever is submitted, the engine answers instead of crashing, also when it looks a second time."""
    for spec in (
        {},
        {"entrypoint": "a"},
        {"entrypoint": "a", "templates": []},
        {"entrypoint": "a", "templates": [None]},
    ):
        run = machine({"kind": "Workflow", "metadata": {"name": "wf"}, "spec": spec}).go(10)
        assert run.phase == "Failed"
