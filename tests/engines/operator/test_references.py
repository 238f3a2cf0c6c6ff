"""Templates that are not the Workflow's own: inline ones, and those of WorkflowTemplates."""

from __future__ import annotations

from typing import Any

import pytest

from ffdl.engines.local.operator import invalid, unsupported


def _ref(template: str, name: str = "lib", **more: Any) -> dict[str, Any]:
    return {"templateRef": {"name": name, "template": template, **more}}


def _task(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def _stored(workflow: dict[str, Any], *templates: dict[str, Any], scope: str = "namespaced/lib") -> dict[str, Any]:
    """`workflow` with templates of a WorkflowTemplate stored in its status, as when it is submitted."""
    stored = {f"{scope}/{template['name']}": template for template in templates}
    old = (workflow.get("status") or {}).get("storedTemplates") or {}
    return {**workflow, "status": {"storedTemplates": {**old, **stored}}}


def test_inline(make: Any, machine: Any) -> None:
    """A template where it is used: its node has no template's name, its pod neither."""
    inline = {"inputs": {"parameters": [{"name": "x"}]}, "container": {"image": "i", "command": ["echo"]}}
    inline["container"]["args"] = ["{{inputs.parameters.x}} {{workflow.name}}"]
    given = {"parameters": [{"name": "x", "value": "1"}]}
    tasks = [_task("a", inline=inline, arguments=given), _task("b", inline=inline, arguments=given, depends="a")]
    run = machine(make.workflow(make.dag("main", *tasks))).go()
    node = run.node(".a")
    assert "templateName" not in node
    assert run.started == [f"wf-{node['id'].removeprefix('wf-')}"]
    del run.pods[run.started[0]]
    assert run.decide().start[0].template["container"]["args"] == ["1 wf"], "it is found again when asked for again"
    run.go()
    run.end("a")
    run.end("b")
    assert run.phase == "Succeeded"


def test_inline_templates_see_what_is_around_them(make: Any, machine: Any) -> None:
    """The inputs of the template they stand in, and the item of their loop."""
    said = "{{inputs.parameters.x}} {{item}}"
    inline = {"container": {"image": "i", "command": ["echo"], "args": [said]}, "retryStrategy": {"limit": 1}}
    tasks = [make.task("a", "leaf"), _task("b", inline=inline, withItems=[1, 2], depends="a")]
    main = make.dag("main", *tasks, inputs={"parameters": [{"name": "x", "value": "X"}]})
    run = machine(make.workflow(main, make.leaf("leaf"))).go()
    run.end("a")
    run.end("b(0:1)(0)", 1)
    assert run.running() == ["b(0:1)(1)", "b(1:2)(0)"]
    said = [request.template["container"]["args"][0] for request in run.requests[1:]]
    assert said == ["X 1", "X 2", "X 1"]
    run.pods.popitem()
    assert run.decide().start[0].template["container"]["args"] == ["X 1"]


def test_inline_dags_nest(make: Any, machine: Any) -> None:
    """Steps in a DAG in steps, none of which has a name."""
    leaf = {"container": {"image": "i", "command": ["c"]}}
    inner = {"dag": {"tasks": [_task("x", inline=leaf), _task("y", inline=leaf, depends="x")]}}
    run = machine(make.workflow({"name": "main", "steps": [[_task("s", inline=inner)]]})).go()
    run.end("x")
    run.end("y")
    assert run.phase == "Succeeded"
    assert {n["name"]: n["type"] for n in run.nodes()} == {
        "wf": "Steps", "wf[0]": "StepGroup", "wf[0].s": "DAG", "wf[0].s.x": "Pod", "wf[0].s.y": "Pod",
    }  # fmt: skip


def test_a_template_of_elsewhere_calls_its_own(make: Any, machine: Any) -> None:
    """Names in it are looked up where it comes from, and what it refers to in turn; nodes say where."""
    theirs = [
        make.dag("flow", make.task("a", "leaf"), _task("b", **_ref("leaf", "other", clusterScope=True), depends="a")),
        make.leaf("leaf"),
    ]
    ours = make.dag("main", _task("t", **_ref("flow")), make.task("leaf"))
    workflow = _stored(make.workflow(ours, make.leaf("leaf")), *theirs)
    run = machine(_stored(workflow, make.leaf("leaf"), scope="cluster/other")).go()
    assert (run.node(".t")["templateScope"], run.node(".t")["templateRef"]) == ("local/wf", _ref("flow")["templateRef"])
    a = run.node(".t.a")
    assert (a["templateScope"], a["templateName"]) == ("namespaced/lib", "leaf")
    run.end("a")
    b = run.node(".t.b")
    assert (b["templateScope"], b["templateRef"]["name"], "templateName" in b) == ("namespaced/lib", "other", False)
    assert run.started[-1] == f"wf-leaf-{b['id'].removeprefix('wf-')}"
    run.end("b")
    run.end("leaf")
    assert run.phase == "Succeeded"


def test_hooks_and_exit_handlers_refer_too(make: Any, machine: Any) -> None:
    """Whatever runs a template may take it from elsewhere."""
    task = make.task("a", "leaf", hooks={"exit": {**_ref("bye")}})
    workflow = make.workflow(make.dag("main", task), make.leaf("leaf"), hooks={"exit": _ref("bye")})
    run = machine(_stored(workflow, make.leaf("bye"))).go()
    run.end("a")
    run.end("a.onExit")
    run.end("wf.onExit")
    assert run.phase == "Succeeded"


def test_a_reference_known_only_when_it_runs(make: Any, machine: Any) -> None:
    """Which template it is may be a parameter."""
    task = _task("a", **_ref("{{workflow.parameters.which}}"))
    workflow = make.workflow(make.dag("main", task), arguments={"parameters": [{"name": "which", "value": "leaf"}]})
    run = machine(_stored(workflow, make.leaf("leaf"))).go()
    assert run.running() == ["a"]
    workflow["spec"]["arguments"]["parameters"][0]["value"] = "no-such"
    run = machine(_stored(workflow, make.leaf("leaf"))).go()
    assert run.node(".a")["message"] == "task 'wf.a' errored: template no-such not found in workflow template lib"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (_ref("leaf"), "template reference lib.leaf not found"),
        ({**_ref("good"), "template": "x"}, "template name cannot be specified with templateRef."),
        (_ref("bad"), "template name 'nowhere' undefined"),
        (_ref("odd"), "status.storedTemplates.namespaced/lib/odd.http: not executed"),
    ],
)
def test_what_is_wrong_is_found_before_anything_runs(make: Any, reference: Any, says: str) -> None:
    """In the templates of others, too."""
    templates = [make.leaf("good"), make.dag("bad", make.task("a", "nowhere")), {"name": "odd", "http": {"url": "u"}}]
    wanted = templates if "odd" in str(reference) else templates[:2]
    workflow = _stored(make.workflow(make.dag("main", _task("t", **reference))), *wanted)
    assert any(says in said for said in unsupported(workflow) or invalid(workflow))


def test_a_workflow_template_that_is_not_there(make: Any, machine: Any) -> None:
    """As Argo says it; where it is there, its spec is joined to the Workflow's when that is submitted."""
    workflow = make.workflow(make.leaf("main"))
    workflow["spec"] = {"workflowTemplateRef": {"name": "lib"}}
    run = machine(workflow).go()
    assert (run.phase, run.workflow["status"]["message"]) == ("Error", 'workflowtemplate.argoproj.io "lib" not found')
