"""Values on their way: what a Workflow says of itself, items of loops, defaults; to the letter as on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from ffdl.engines.local.pod import PodObservation


def said(make: Any, machine: Any, *texts: str, **more: Any) -> list[str]:
    """The arguments of a pod whose template has these."""
    leaf = make.leaf("main")
    leaf["container"]["args"] = list(texts)
    workflow = make.workflow(leaf, **more.pop("spec", {}))
    workflow["metadata"] |= more
    run = machine(workflow).go()
    return list(run.requests[-1].template["container"]["args"])


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("workflow.name", "wf"),
        ("workflow.namespace", "ffdl"),
        ("workflow.uid", "u-1"),
        ("workflow.mainEntrypoint", "main"),
        ("workflow.serviceAccountName", "robot"),
        ("workflow.priority", "7"),
        ("workflow.creationTimestamp", "2026-01-01T14:05:06Z"),
        ("workflow.creationTimestamp.RFC3339", "2026-01-01T14:05:06Z"),
        ("workflow.creationTimestamp.s", "1767276306"),
        ("workflow.creationTimestamp.Y", "2026"),
        ("workflow.creationTimestamp.m", "01"),
        ("workflow.creationTimestamp.B", "January"),
        ("workflow.creationTimestamp.a", "Thu"),
        ("workflow.creationTimestamp.I", "02"),
        ("workflow.creationTimestamp.p", "PM"),
        ("workflow.creationTimestamp.z", "+0000"),
        ("workflow.parameters.number", "1.5"),
        ("workflow.parameters.flag", "true"),
        ("workflow.parameters.huge", "100000000000000000000"),
        (
            "workflow.parameters.json",
            '[{"name":"number","value":"1.5"},{"name":"flag","value":"true"},'
            '{"name":"huge","value":"100000000000000000000"},{"name":"t","value":"a\\u003cb","enum":["a\\u003cb","2"]}]',
        ),
        ("workflow.labels.team", "vision"),
        ("workflow.labels.added", "yes"),
        ("workflow.labels.worked-out", "vision-wf"),
        ("workflow.labels.json", '{"added":"yes","team":"vision","worked-out":"vision-wf"}'),
        ("workflow.annotations", "null"),
        ("workflow.status", "Running"),
        ("workflow.duration", "0.000000"),
        ("=workflow.parameters.number", "1.5"),
        ("=asFloat(workflow.parameters.number) * 2", "3"),
        ("=workflow.labels['worked-out']", "vision-wf"),
        ("node.name", "wf"),
        ("pod.name", "wf"),
    ],
)
def test_what_a_workflow_says_of_itself(make: Any, machine: Any, reference: str, value: str) -> None:
    """Every value of Argo's table of variables is there, in Argo's spelling."""
    declared = [
        {"name": "number", "value": 1.5},
        {"name": "flag", "value": True},
        {"name": "huge", "value": 10**20},
        {"name": "t", "value": "a<b", "enum": ["a<b", 2]},
    ]
    added = {"labels": {"added": "yes"}, "labelsFrom": {"worked-out": {"expression": "workflow.labels.team + '-wf'"}}}
    spec = {
        "serviceAccountName": "robot",
        "priority": 7,
        "arguments": {"parameters": declared},
        "workflowMetadata": added,
    }
    metadata = {"labels": {"team": "vision"}, "creationTimestamp": "2026-01-01T14:05:06Z"}
    assert said(make, machine, f"{{{{{reference}}}}}", spec=spec, **metadata) == [value]


def test_a_label_that_cannot_be_worked_out(make: Any, machine: Any) -> None:
    """The Workflow ends with the reason instead of running under a wrong label."""
    added = {"labelsFrom": {"a": {"expression": "asInt('x')"}}}
    run = machine(make.workflow(make.leaf("main"), workflowMetadata=added)).go()
    assert run.phase == "Error"
    assert 'failed to evaluate label "a"' in run.workflow["status"]["message"]


@pytest.mark.parametrize(
    ("loop", "runs"),
    [
        ({"withItems": ["a", 'b"c', "d(e)"]}, {"t(0:a)": "a", 't(1:b\\"c)': 'b"c', "t(2:de)": "d(e)"}),
        ({"withItems": [1, 2.0, 1.5, True]}, {"t(0:1)": "1", "t(1:2)": "2", "t(2:1.5)": "1.5", "t(3:true)": "true"}),
        ({"withItems": [{"b": 1, "a": "x<"}]}, {"t(0:a:x<,b:1)": '{"a":"x\\u003c","b":1}'}),
        ({"withItems": [["a", 1], [{"k": 2}]]}, {"t(0:[a 1])": '["a",1]', 't(1:[{"k":2}])': '[{"k":2}]'}),
        ({"withParam": '[1.50, "a", {"z": 1, "y": [1e3]}]'}, {
            "t(0:1.50)": "1.50", "t(1:a)": "a", "t(2:y:[1e3],z:1)": '{"y":[1e3],"z":1}',
        }),
        ({"withSequence": {"count": 2}}, {"t(0:0)": "0", "t(1:1)": "1"}),
        ({"withSequence": {"start": "5", "end": 3}}, {"t(0:5)": "5", "t(1:4)": "4", "t(2:3)": "3"}),
        ({"withSequence": {"count": "2", "start": 9, "format": "n%03x"}}, {"t(0:n009)": "n009", "t(1:n00a)": "n00a"}),
    ],
)  # fmt: skip
def test_items_and_the_names_of_their_runs(make: Any, machine: Any, loop: dict[str, Any], runs: dict[str, str]) -> None:
    """Nodes are found by name: those of a loop's runs are Argo's, and so is what each is given."""
    workflow = make.workflow(
        make.dag("main", make.task("t", "leaf", given={"x": "{{item}}"}, **loop)), make.leaf("leaf", "x")
    )
    run = machine(workflow).go()
    assert {n["displayName"]: n["inputs"]["parameters"][0]["value"] for n in run.nodes("Pod")} == runs


def test_members_of_an_item(make: Any, machine: Any) -> None:
    """A grid of hyper-parameters is a list of objects."""
    task = make.task("t", "leaf", given={"x": "{{item.lr}} {{item.layers}}"}, withItems=[{"lr": 0.1, "layers": [8, 4]}])
    run = machine(make.workflow(make.dag("main", task), make.leaf("leaf", "x"))).go()
    assert run.nodes("Pod")[0]["inputs"]["parameters"][0]["value"] == "0.1 [8,4]"


@pytest.mark.parametrize(
    ("loop", "says"),
    [
        ({"withParam": '{"a": 1}'}, "json: cannot unmarshal object into Go value of type []v1alpha1.Item"),
        ({"withParam": "[1,"}, "withParam value could not be parsed as a JSON list: [1,: unexpected end of JSON input"),
        ({"withSequence": {"count": "many"}}, 'strconv.Atoi: parsing "many": invalid syntax'),
        ({"withSequence": {"start": 1}}, "neither end nor count was specified in withSequence"),
        ({"withSequence": {"count": 10**9}}, "the most is 100000"),
    ],
)
def test_a_loop_over_no_list(make: Any, machine: Any, loop: dict[str, Any], says: str) -> None:
    """The message has the value, which another step may have made."""
    run = machine(make.workflow(make.dag("main", make.task("t", "leaf", **loop)), make.leaf("leaf"))).go()
    assert run.phase in ("Error", "Failed")
    assert says in run.node(".t")["message"]


def test_lists_of_results_keep_their_numbers(make: Any, machine: Any) -> None:
    """What a loop's steps print comes together as JSON, nothing rounded on the way."""
    script = {"name": "script", "script": {"image": "i", "command": ["c"], "source": "s"}}
    loop = make.task("loop", "script", withItems=["a", "b"])
    use = make.task("use", "leaf", "loop", {"x": "{{tasks.loop.outputs.result}}"})
    run = machine(make.workflow(make.dag("main", loop, use), script, make.leaf("leaf", "x"))).go()
    for name, result in (("loop(0:a)", "1.50"), ("loop(1:b)", '{"b": 1e3, "a": "<"}')):
        pod = run.pod(next(n for n in run.nodes("Pod") if n["displayName"] == name))
        run.pods[pod] = PodObservation("Succeeded", 0, "", {}, result=result, finished_at=run.now)
    run.go()
    assert run.node(".use")["inputs"]["parameters"][0]["value"] == '[1.50,{"b":1e3,"a":"\\u003c"}]'


def test_failures_reach_the_exit_handler(make: Any, machine: Any) -> None:
    """A notification tells which steps failed; the text stands between quotes, for a shell's sake."""
    handler = make.leaf("handler")
    handler["container"]["args"] = ["{{workflow.failures}}", "{{workflow.status}}"]
    run = machine(make.workflow(make.dag("main", make.task("a")), make.leaf("a"), handler, onExit="handler")).go()
    run.end("a", 3)
    failures, status = run.request("handler")["container"]["args"]
    assert status == "Failed"
    assert failures.startswith('"[{\\"displayName\\":\\"')
    assert '\\"a\\",\\"message\\":\\"main: Error (exit code 3)\\",\\"templateName\\":\\"a\\",\\"phase' in failures


def test_defaults_of_templates(make: Any, machine: Any) -> None:
    """What a template leaves open comes from `templateDefaults`; lists that have names are merged by name."""
    a, b, c = ({"name": name, "value": name.lower()} for name in "ABC")
    defaults = {
        "retryStrategy": {"limit": 1},
        "container": {"image": "d", "command": ["d"], "env": [a, {**b, "value": "1"}]},
        "script": {"image": "s", "command": ["s"], "source": "s"},
    }
    own = {"name": "main", "container": {"command": ["o"], "env": [b, c]}}
    run = machine(make.workflow(own, templateDefaults=defaults)).go()
    container = run.requests[-1].template["container"]
    assert container == {"image": "d", "command": ["o"], "env": [a, b, c]}
    assert "script" not in run.requests[-1].template
    run.end("wf(0)", 1)
    assert run.running() == ["wf(1)"]
