"""Files from node to node: which one is meant, where it is kept, and what is said when there is none."""

from __future__ import annotations

from typing import Any

import pytest

MADE = {"artifacts": [{"name": "art", "path": "/tmp/out/"}]}
TAKES = {"artifacts": [{"name": "art", "path": "/in/art", "mode": 384}]}


def pipeline(make: Any, given: dict[str, Any], made: dict[str, Any] | None = None, **taker: Any) -> dict[str, Any]:
    """`a` makes `art`, `b` takes what `given` says as its own `art`."""
    taker = {"inputs": TAKES, **taker}
    b = make.task("b", "taker", "a", arguments={"artifacts": [{"name": "art", **given}]})
    main = make.dag("main", make.task("a", "maker"), b)
    return make.workflow(main, make.leaf("maker", outputs=made or MADE), make.leaf("taker", **taker))


def test_from_one_task_to_another(make: Any, machine: Any) -> None:
    """The taker gets the maker's file under its own path; what is kept has Argo's key."""
    run = machine(pipeline(make, {"from": "{{tasks.a.outputs.artifacts.art}}"})).go()
    pod = run.started[0]
    key = f"wf/{pod}/art.tgz"
    assert run.request("maker")["outputs"]["artifacts"] == [{**MADE["artifacts"][0], "s3": {"key": key}}]
    run.tell("a", "Succeeded", exit_code=0, artifacts=["art"])
    stored = {"name": "art", "path": "/tmp/out/", "s3": {"key": key}}
    assert run.node(".a")["outputs"] == {"exitCode": "0", "artifacts": [stored]}
    taken = {"name": "art", "path": "/in/art", "mode": 384, "s3": {"key": key}}
    assert run.node(".b")["inputs"] == {"artifacts": [taken]}
    assert run.request("taker")["inputs"] == {"artifacts": [taken]}


@pytest.mark.parametrize(
    ("artifact", "name"),
    [
        ({"path": "/a/b.txt"}, "art.tgz"),
        ({"path": "/a/b.txt", "archive": {"tar": {"compressionLevel": 0}}}, "art.tgz"),
        ({"path": "/a/b.txt", "archive": {"zip": {}}}, "art.zip"),
        ({"path": "/a/b.txt", "archive": {"none": {}}}, "b.txt"),
        ({"path": "/a/b/", "archive": {"none": {}}}, "b"),
    ],
)
def test_what_it_is_called_in_the_store(make: Any, machine: Any, artifact: dict[str, Any], name: str) -> None:
    """Whoever looks into the store finds the names that Argo gives."""
    run = machine(make.workflow(make.leaf("main", outputs={"artifacts": [{"name": "art", **artifact}]}))).go()
    assert run.request("wf")["outputs"]["artifacts"][0]["s3"]["key"] == f"wf/wf/{name}"


def test_a_key_of_the_users_own(make: Any, machine: Any) -> None:
    """A Workflow may say where in the store a file goes, and another step may take it from there by that key."""
    out = {"artifacts": [{"name": "art", "path": "/a", "s3": {"key": "{{workflow.name}}/mine/{{pod.name}}"}}]}
    run = machine(make.workflow(make.leaf("main", outputs=out))).go()
    assert run.request("wf")["outputs"]["artifacts"][0]["s3"]["key"] == "wf/mine/wf"


@pytest.mark.parametrize("key", ["../../x", "/etc/passwd", "a/../../b"])
def test_a_key_that_leads_out_of_the_store(make: Any, machine: Any, key: str) -> None:
    """The store is a folder of this machine: a Workflow from elsewhere gets at nothing beside it."""
    for side in ("inputs", "outputs"):
        leaf = make.leaf("main", **{side: {"artifacts": [{"name": "art", "path": "/a", "s3": {"key": key}}]}})
        run = machine(make.workflow(leaf)).go()
        assert run.phase == "Error"
        assert "leads out of the artifact store" in run.workflow["status"]["message"]
        assert run.started == []


def test_text_as_a_file(make: Any, machine: Any) -> None:
    """`raw` needs no store; references in it are resolved."""
    inputs = {
        "parameters": [{"name": "who", "value": "you"}],
        "artifacts": [{"name": "art", "path": "/a", "raw": {"data": "hello {{inputs.parameters.who}}"}}],
    }
    run = machine(make.workflow(make.leaf("main", inputs=inputs))).go()
    assert run.request("wf")["inputs"]["artifacts"][0]["raw"] == {"data": "hello you"}


def test_paths_can_be_referred_to(make: Any, machine: Any) -> None:
    """`{{inputs.artifacts.art.path}}` in a command is where the file is, in outputs where it is to be."""
    container = {"image": "i", "command": ["cp", "{{inputs.artifacts.art.path}}", "{{outputs.artifacts.art.path}}"]}
    workflow = pipeline(
        make,
        {"from": "{{tasks.a.outputs.artifacts.art}}"},
        container=container,
        outputs={"artifacts": MADE["artifacts"]},
    )
    run = machine(workflow).go().tell("a", "Succeeded", exit_code=0, artifacts=["art"])
    assert run.request("taker")["container"]["command"] == ["cp", "/in/art", "/tmp/out/"]


def test_a_part_of_what_is_kept(make: Any, machine: Any) -> None:
    """`subPath` names a file in a folder that was stored as it is."""
    made = {"artifacts": [{"name": "art", "path": "/data", "archive": {"none": {}}}]}
    given = {"from": "{{tasks.a.outputs.artifacts.art}}", "subPath": "train/x.csv"}
    run = machine(pipeline(make, given, made)).go().tell("a", "Succeeded", exit_code=0, artifacts=["art"])
    key = run.request("taker")["inputs"]["artifacts"][0]["s3"]["key"]
    assert key == f"wf/{run.started[0]}/data/train/x.csv"


def test_an_expression_chooses(make: Any, machine: Any) -> None:
    """Of two branches, a DAG hands on the file of the one that ran."""
    chosen = "tasks.heads.status == 'Succeeded' ? tasks.heads.outputs.artifacts.art : tasks.tails.outputs.artifacts.art"
    inner = make.dag("main", make.task("heads", "maker", when="1 == 2"), make.task("tails", "maker"))
    inner["outputs"] = {"artifacts": [{"name": "chosen", "fromExpression": chosen}]}
    run = machine(make.workflow(inner, make.leaf("maker", outputs=MADE))).go()
    run.tell("tails", "Succeeded", exit_code=0, artifacts=["art"])
    stored = {"name": "chosen", "path": "/tmp/out/", "s3": {"key": f"wf/{run.started[0]}/art.tgz"}}
    assert run.node("")["outputs"] == {"artifacts": [stored]}


@pytest.mark.parametrize("optional", [True, False])
def test_a_file_that_nobody_made(make: Any, machine: Any, optional: bool) -> None:
    """An optional one is left out; else the task is an Error that names it."""
    made = {"artifacts": [{**MADE["artifacts"][0], "optional": True}]}
    given = {"from": "{{tasks.a.outputs.artifacts.art}}", "optional": optional}
    inputs = {"artifacts": [{**TAKES["artifacts"][0], "optional": optional}]}
    run = machine(pipeline(make, given, made, inputs=inputs)).go().tell("a", "Succeeded", exit_code=0)
    if optional:
        assert run.request("taker")["inputs"]["artifacts"] == inputs["artifacts"]
    else:
        assert run.node(".b")["phase"] == "Error"
        assert run.node(".b")["message"] == 'Unable to resolve: "tasks.a.outputs.artifacts.art"'


def test_out_of_a_dag_into_steps_and_to_all(make: Any, machine: Any) -> None:
    """A DAG hands on its task's file as its own; with a global name everybody finds it."""
    inner = make.dag("inner", make.task("a", "maker"))
    inner["outputs"] = {"artifacts": [{"name": "up", "from": "{{tasks.a.outputs.artifacts.art}}", "globalName": "all"}]}
    made = {"artifacts": [{**MADE["artifacts"][0], "globalName": "first"}]}

    def taker(name: str, source: str) -> dict[str, Any]:
        return make.task(name, "taker", arguments={"artifacts": [{"name": "art", "from": f"{{{{{source}}}}}"}]})

    groups = [
        [make.task("s", "inner")],
        [taker("x", "steps.s.outputs.artifacts.up"), taker("y", "workflow.outputs.artifacts.first")],
    ]
    steps = {"name": "main", "steps": groups}
    run = machine(make.workflow(steps, inner, make.leaf("maker", outputs=made), make.leaf("taker", inputs=TAKES))).go()
    run.tell("a", "Succeeded", exit_code=0, artifacts=["art"])
    key = {"key": f"wf/{run.started[0]}/art.tgz"}
    assert [r.template["inputs"]["artifacts"][0]["s3"] for r in run.requests[1:]] == [key, key]
    assert run.workflow["status"]["outputs"] == {"artifacts": [{"name": "first", "s3": key}]}


def test_a_retried_task_hands_over_its_last_attempts_file(make: Any, machine: Any) -> None:
    """Each attempt has a pod of its own, so a key of its own."""
    workflow = pipeline(make, {"from": "{{tasks.a.outputs.artifacts.art}}"})
    workflow["spec"]["templates"][1]["retryStrategy"] = {"limit": 1}
    run = machine(workflow).go().tell("a(0)", "Failed", exit_code=1, artifacts=["art"])
    run.tell("a(1)", "Succeeded", exit_code=0, artifacts=["art"])
    assert run.request("taker")["inputs"]["artifacts"][0]["s3"]["key"] == f"wf/{run.started[1]}/art.tgz"


def test_a_hook_gets_files_too(make: Any, machine: Any) -> None:
    """An exit hook uploads what its task has made."""
    given = {"artifacts": [{"name": "art", "from": "{{tasks.a.outputs.artifacts.art}}"}]}
    task = make.task("a", "maker", hooks={"exit": {"template": "taker", "arguments": given}})
    main = make.dag("main", task)
    run = machine(make.workflow(main, make.leaf("maker", outputs=MADE), make.leaf("taker", inputs=TAKES))).go()
    run.tell("a", "Succeeded", exit_code=0, artifacts=["art"])
    assert run.request("taker")["inputs"]["artifacts"][0]["s3"]["key"] == f"wf/{run.started[0]}/art.tgz"
