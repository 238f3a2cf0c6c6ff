"""Workflows from their first pass to their last, by Argo's rules: users of the embedded engine rely on them too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ffdl.engines.local.operator.names import fnv1a
from ffdl.engines.local.pod import PodObservation


def _end_learners(run: Any, code: int = 0) -> None:
    for node in [n for n in run.running() if n.startswith("learner")]:
        run.end(node, code)


def test_a_job_from_start_to_end(make: Any, machine: Any) -> None:
    """Download and helper begin at once, learners after the download, storing after all; the exit step stays out."""
    run = machine(make.job()).go()
    assert run.running() == ["checkpoint(0)", "download(0)"]
    assert run.node(".network")["phase"] == "Succeeded"
    run.end("download")
    assert run.running() == ["checkpoint(0)", "learner(0:0)(0)", "learner(1:1)(0)"]
    run.end("learner(0:0)")
    run.end("learner(1:1)")
    assert run.running() == ["checkpoint(0)"]
    run.end("checkpoint")
    assert run.running() == ["store-results(0)"]
    run.end("store-results")
    status = run.workflow["status"]
    assert (status["phase"], status["progress"], status.get("message")) == ("Succeeded", "6/6", None)
    assert status["conditions"] == [{"type": "PodRunning", "status": "False"}, {"type": "Completed", "status": "True"}]
    assert run.phases("Skipped") == {"store-results": "Skipped"}
    assert run.node(".onExit[0].store-results")["message"] == "when 'Succeeded != Succeeded' evaluated false"
    assert run.node(".onExit")["nodeFlag"] == {"hooked": True}


def test_node_format_is_argos(make: Any, machine: Any) -> None:
    """`engines.status`, and Argo's own tools, read these fields; the ids are those of a real cluster."""
    run = machine(make.job()).go()
    run.end("download")
    assert run.node(".learner(1:1)(0)") == {
        "id": "wf-1429379455",
        "name": "wf.learner(1:1)(0)",
        "displayName": "learner(1:1)(0)",
        "type": "Pod",
        "templateName": "learner",
        "templateScope": "local/wf",
        "phase": "Running",
        "boundaryID": "wf",
        "startedAt": "2025-06-15T15:06:40Z",
        "finishedAt": None,
        "nodeFlag": {"retried": True},
        "inputs": {"parameters": [{"name": "index", "value": "1"}]},
        "taskResultSynced": True,
        "progress": "0/1",
    }
    assert run.pod(run.node(".learner(1:1)(0)")) == "wf-learner-1429379455"
    group = run.node(".learner")
    assert (group["type"], group["nodeFlag"], len(group["children"])) == ("TaskGroup", {}, 2)
    retry = run.node(".learner(1:1)")
    assert (retry["type"], "nodeFlag" in retry, retry["children"]) == ("Retry", False, ["wf-1429379455"])
    root = run.node("")
    assert (root["id"], root["type"], root["displayName"]) == ("wf", "DAG", "wf")
    assert "boundaryID" not in root


def test_requests_are_ready_to_run(make: Any, machine: Any) -> None:
    """The runner starts what it is handed: references, volumes, claims, patch and account are resolved by then."""
    workflow = make.job(
        volumes=[{"name": "config", "configMap": {"name": "{{workflow.name}}"}}, {"name": "unused", "emptyDir": {}}],
        volumeClaimTemplates=[{"metadata": {"name": "job"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}],
        podSpecPatch='{"terminationGracePeriodSeconds": 10, "hostname": "no"}',
        serviceAccountName="account",
        automountServiceAccountToken=False,
    )
    learner = workflow["spec"]["templates"][4]
    learner["container"]["env"] = [{"name": "I", "value": "{{inputs.parameters.index}} {{tasks.name}}"}]
    learner["container"]["volumeMounts"] = [{"name": "job", "mountPath": "/job"}, {"name": "config", "mountPath": "/c"}]
    learner["initContainers"] = [{"name": "agent", "image": "a", "command": ["x"], "mirrorVolumeMounts": True}]
    learner["automountServiceAccountToken"] = True
    run = machine(workflow).go()
    run.end("download")
    request = run.request("learner")
    assert request["container"]["env"][0]["value"] == "1 learner(1:1)"
    assert request["volumes"] == [
        {"name": "config", "configMap": {"name": "wf"}},
        {"name": "job", "persistentVolumeClaim": {"claimName": "wf-job"}},
    ]
    assert request["podSpecPatch"] == {"terminationGracePeriodSeconds": 10, "hostname": "wf-1"}
    assert (request["serviceAccountName"], request["automountServiceAccountToken"]) == ("account", True)
    assert request["initContainers"][0]["volumeMounts"] == learner["container"]["volumeMounts"]


def test_resources_carry_their_manifest(make: Any, machine: Any) -> None:
    """The headless Service gets the job's name."""
    decision = machine(make.job()).decide()
    (resource,) = decision.resources
    assert (resource.manifest, resource.action) == ("name: wf", "apply")
    assert resource.pod_name.startswith("wf-network-")


def test_a_failed_learner_leaves_the_others_running(make: Any, machine: Any) -> None:
    """With failFast false learners end in their own time; then the job fails, and the exit step stores results."""
    run = machine(make.job()).go()
    run.end("download")
    run.end("learner(0:0)", 3)
    assert run.running() == ["checkpoint(0)", "learner(1:1)(0)"]
    run.end("learner(1:1)", 70)
    assert run.running() == ["checkpoint(0)"]
    run.end("checkpoint")
    assert run.node(".store-results")["phase"] == "Omitted"
    assert run.node(".store-results")["message"] == "omitted: depends condition not met"
    assert run.running() == ["store-results(0)"]
    assert run.request("store")["inputs"]["parameters"][0]["value"] == "Failed"
    run.end("store-results")
    assert (run.phase, run.node("")["phase"]) == ("Failed", "Failed")
    assert run.workflow["status"]["progress"] == "4/6"


def test_exit_handler_runs_once_and_its_failure_shows(make: Any, machine: Any) -> None:
    """A store step that fails after a success must turn the Workflow red."""
    workflow = make.workflow(make.leaf("main"), make.leaf("bye"), onExit="bye")
    run = machine(workflow).go()
    run.end("wf")
    assert run.running() == ["wf.onExit"]
    run.end("wf.onExit", 4)
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "main: Error (exit code 4)")
    assert len(run.started) == 2


def test_exit_handler_is_told_what_failed(make: Any, machine: Any) -> None:
    """`{{workflow.failures}}` is what a notification step sends."""
    bye = make.leaf("bye")
    bye["container"]["args"] = ["{{workflow.failures}}", "{{workflow.status}}", "{{workflow.duration}}"]
    run = machine(make.workflow(make.leaf("main"), bye, onExit="bye")).go(3)
    run.end("wf", 7)
    failures, status, duration = run.request("bye")["container"]["args"]
    (failure,) = json.loads(json.loads(failures))
    assert (failure["displayName"], failure["phase"], failure["podName"]) == ("wf", "Failed", "wf")
    assert (status, duration) == ("Failed", "3.000000")


# --- suspend and shutdown ---------------------------------------------------------------------------------------------


def test_suspend_starts_nothing_and_records_ends(make: Any, machine: Any) -> None:
    """A halted job's pods end and none follows, not even a retry of a dead helper; resumed, all go on."""
    run = machine(make.job()).go()
    run.end("download")
    run.set(suspend=True)
    run.end("learner(0:0)", 75)
    run.end("learner(1:1)", 75)
    run.end("checkpoint", 137, message="main: Error (exit code 137)")
    run.go(1000)
    assert run.running() == []
    assert run.last.wake is None
    assert run.phase == "Running"
    started = len(run.started)
    run.set(suspend=False).go()
    assert run.running() == ["checkpoint(1)", "learner(0:0)(1)", "learner(1:1)(1)"]
    assert len(run.started) == started + 3


def test_created_suspended_does_nothing(make: Any, machine: Any) -> None:
    """Submission creates the Workflow suspended and releases it when all of it is there."""
    run = machine(make.job(suspend=True)).go(100)
    assert (run.phase, run.nodes(), run.started) == ("Running", [], [])
    assert run.set(suspend=None).go().running() == ["checkpoint(0)", "download(0)"]


def test_suspend_on_a_finished_workflow_means_nothing(make: Any, machine: Any) -> None:
    """Halting what has ended must not revive it."""
    run = machine(make.workflow(make.leaf("main"))).go()
    run.end("wf")
    status = run.workflow["status"]
    assert run.set(suspend=True).go(10).workflow["status"] == status
    assert run.set(suspend=False).go(10).workflow["status"] == status


def test_stop_ends_all_and_runs_the_exit_handler_unretried(make: Any, machine: Any) -> None:
    """A stopped job still stores its results, once, and starts nothing else; the pods it ends may take their grace."""
    run = machine(make.job()).go()
    run.end("download")
    run.set(shutdown="Stop")
    decision = run.decide()
    assert len(decision.terminate) == 3
    run.write(decision)
    assert {n["phase"] for n in run.nodes("Pod") if "learner" in n["name"]} == {"Failed"}
    assert run.node(".learner(0:0)(0)")["message"] == "workflow shutdown with strategy:  Stop"
    assert run.node(".learner(0:0)")["message"] == "Stopped with strategy 'Stop'"
    assert len(decision.start) == 1, "the exit handler starts while killed pods are in their grace"
    assert run.decide().terminate == decision.terminate, "until they are gone they are to be ended"
    run.go()
    run.end("store-results", 75)
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "Stopped with strategy 'Stop'")
    assert run.node(".onExit[0].store-results")["phase"] == "Failed"
    assert run.go(100).running() == []


def test_stop_between_attempts(make: Any, machine: Any) -> None:
    """A learner waiting for its next attempt is stopped as well."""
    run = machine(make.job()).go()
    run.end("download")
    run.end("learner(0:0)", 75)
    run.set(shutdown="Stop").go()
    assert run.node(".learner(0:0)")["message"] == "Stopped with strategy 'Stop'"
    assert run.running() == ["store-results(0)"]


def test_stop_reaches_pods_that_were_never_started(make: Any, machine: Any) -> None:
    """A job that waits for room, or whose runner died before starting anything, can be stopped."""
    run = machine(make.job())
    run.write(run.decide())
    run.set(shutdown="Stop").go()
    assert run.running() == ["store-results(0)"]


def test_stop_of_a_suspended_workflow_waits_for_its_release(make: Any, machine: Any) -> None:
    """Seen on Argo: the pods are killed, but the Workflow goes on for ever until it is unsuspended."""
    run = machine(make.job()).go()
    run.end("download")
    run.set(suspend=True, shutdown="Stop").go(100)
    assert (run.phase, run.running()) == ("Running", [])
    run.set(suspend=False).go()
    run.end("store-results")
    assert run.phase == "Failed"


def test_terminate_skips_the_exit_handler(make: Any, machine: Any) -> None:
    """`Terminate` ends everything at once, what is left of the exit handler too."""
    run = machine(make.job()).go()
    run.set(shutdown="Terminate").go()
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", "Stopped with strategy 'Terminate'")
    run = machine(make.job()).go()
    run.end("download", 70, message="x")
    run.set(shutdown="Stop").go()
    assert run.running() == ["store-results(0)"]
    run.set(shutdown="Terminate").go()
    assert (run.phase, run.running()) == ("Failed", [])


# --- DAGs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depends", "a", "b", "runs"),
    [
        ("a", "ok", "ok", True),
        ("a", "fail", "ok", False),
        ("a && b", "ok", "skip", True),
        ("a.Succeeded && b.Skipped", "ok", "skip", True),
        ("a || b", "fail", "ok", True),
        ("a.Failed || a.Errored", "fail", "ok", True),
        ("a.Errored", "lost", "ok", True),
        ("a.Errored", "fail", "ok", False),
        ("!a.Succeeded && b", "fail", "ok", True),
        ("(a.Succeeded || a.Failed) && (b.Succeeded || b.Failed)", "fail", "fail", True),
        ("a.Daemoned", "ok", "ok", False),
    ],
)
def test_depends(make: Any, machine: Any, depends: str, a: str, b: str, runs: bool) -> None:
    """Every operator and result of `depends`, on tasks that end in every way."""
    workflow = make.workflow(
        make.dag(
            "main",
            make.task("a", "leaf", when="x == y" if a == "skip" else "x == x"),
            make.task("b", "leaf", when="x == y" if b == "skip" else "x == x"),
            make.task("c", "leaf", depends),
        ),
        make.leaf("leaf"),
    )
    run = machine(workflow).go()
    for name, end in (("a", a), ("b", b)):
        if end in ("ok", "fail"):
            run.end(name, 0 if end == "ok" else 1)
        elif end == "lost":
            run.end(name, None, phase="Error")
    assert run.running() == (["c"] if runs else [])
    if not runs:
        assert run.node(".c")["phase"] == "Omitted"


@pytest.mark.parametrize(
    ("depends", "codes", "runs"),
    [
        ("group.AnySucceeded", (0, 1), True),
        ("group.AnySucceeded", (1, 1), False),
        ("group.AllFailed", (1, 1), True),
        ("group.AllFailed", (0, 1), False),
        ("group", (0, 1), False),
    ],
)
def test_depends_on_a_group(make: Any, machine: Any, depends: str, codes: tuple[int, int], runs: bool) -> None:
    """`AnySucceeded` and `AllFailed` look into a loop."""
    workflow = make.workflow(
        make.dag("main", make.task("group", "leaf", withItems=["x", "y"]), make.task("after", "leaf", depends)),
        make.leaf("leaf"),
    )
    run = machine(workflow).go()
    run.end("group(0:x)", codes[0])
    run.end("group(1:y)", codes[1])
    assert (run.running() == ["after"]) is runs


def test_a_dag_is_what_its_leaves_are(make: Any, machine: Any) -> None:
    """Seen on Argo: a DAG whose last step runs after a failed one ends green. A job is shaped to avoid it."""
    workflow = make.workflow(
        make.dag("main", make.task("a", "leaf"), make.task("b", "leaf", "a.Failed"), failFast=False), make.leaf("leaf")
    )
    run = machine(workflow).go()
    run.end("a", 1)
    run.end("b", 0)
    assert run.phase == "Succeeded"


def test_omitted_leaves_inherit_failure(make: Any, machine: Any) -> None:
    """A chain of omitted tasks is as red as what it hangs on, and dependencies go on with `continueOn`."""
    workflow = make.workflow(
        make.dag(
            "main",
            make.task("a", "leaf"),
            make.task("b", "leaf", dependencies=["a"]),
            make.task("c", "leaf", dependencies=["b"]),
        ),
        make.leaf("leaf"),
    )
    run = machine(workflow).go()
    run.end("a", 1)
    assert run.phases("Skipped") == {"b": "Omitted", "c": "Omitted"}
    assert run.phase == "Failed"
    workflow["spec"]["templates"][0]["dag"]["tasks"][0]["continueOn"] = {"failed": True}
    run = machine(workflow).go()
    run.end("a", 1)
    run.end("b")
    run.end("c")
    assert run.phase == "Succeeded"


def test_target(make: Any, machine: Any) -> None:
    """`target` runs a task and what it needs, nothing else."""
    dag = make.dag("main", make.task("a", "leaf"), make.task("b", "leaf", "a"), make.task("c", "leaf"))
    dag["dag"]["target"] = "b"
    run = machine(make.workflow(dag, make.leaf("leaf"))).go()
    run.end("a")
    run.end("b")
    assert (run.phase, sorted(run.phases("Pod"))) == ("Succeeded", ["a", "b"])


def test_nodes_are_connected(make: Any, machine: Any) -> None:
    """Argo's UI and its tools draw the job from `children` and `outboundNodes`."""
    run = machine(make.job()).go()
    run.end("download")
    names = {n["id"]: n["displayName"] for n in run.nodes()}
    assert sorted(names[i] for i in run.node("")["children"]) == ["checkpoint", "download", "network"]
    assert [names[i] for i in run.node(".download(0)")["children"]] == ["learner"]
    assert [names[i] for i in run.node(".network(0)")["children"]] == ["learner"]
    _end_learners(run)
    run.end("checkpoint")
    for name in (".learner(0:0)(0)", ".learner(1:1)(0)", ".checkpoint(0)"):
        assert [run.node(".store-results")["id"]] == run.node(name)["children"]
    run.end("store-results")
    assert run.node("")["outboundNodes"] == [run.node(".store-results(0)")["id"]]


# --- loops, outputs, recursion ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "names", "given"),
    [
        ({"withItems": ["a", 2, True, 1.5]}, ["t(0:a)", "t(1:2)", "t(2:true)", "t(3:1.5)"], ["a", "2", "true", "1.5"]),
        ({"withItems": [1.0]}, ["t(0:1)"], ["1"]),
        ({"withItems": ["a(b)"]}, ["t(0:ab)"], ["a(b)"]),
        ({"withItems": [[1, "x"]]}, ["t(0:[1 x])"], ['[1,"x"]']),
        ({"withParam": "[3,4]"}, ["t(0:3)", "t(1:4)"], ["3", "4"]),
        ({"withSequence": {"count": "2"}}, ["t(0:0)", "t(1:1)"], ["0", "1"]),
        ({"withSequence": {"start": "2", "count": 2}}, ["t(0:2)", "t(1:3)"], ["2", "3"]),
        ({"withSequence": {"start": 2, "end": 1, "format": "h%02d"}}, ["t(0:h02)", "t(1:h01)"], ["h02", "h01"]),
    ],
)
def test_loops(make: Any, machine: Any, loop: dict[str, Any], names: list[str], given: list[str]) -> None:
    """Names and items of every kind of loop, in a DAG and in steps."""
    task = make.task("t", "leaf", given={"x": "{{item}}"}, **loop)
    for template in (make.dag("main", task), {"name": "main", "steps": [[task]]}):
        run = machine(make.workflow(template, make.leaf("leaf", "x"))).go()
        assert sorted(run.running()) == sorted(names)
        values = {n["displayName"]: n["inputs"]["parameters"][0]["value"] for n in run.nodes("Pod")}
        assert [values[name] for name in names] == given
        for name in names:
            run.end(name)
        assert run.phase == "Succeeded"


def test_loop_over_objects(make: Any, machine: Any) -> None:
    """`{{item.key}}`, and a `when` that looks at it."""
    items = [{"b": "z", "a": 1}, {"a": 2, "b": 0}]
    task = make.task("t", "leaf", given={"x": "{{item.a}}-{{item.b}}"}, when="{{item.a}} == 1", withItems=items)
    run = machine(make.workflow(make.dag("main", task), make.leaf("leaf", "x"))).go()
    assert run.phases("Pod", "Skipped") == {"t(0:a:1,b:z)": "Running", "t(1:a:2,b:0)": "Skipped"}
    assert run.request("leaf")["inputs"]["parameters"][0]["value"] == "1-z"


def test_empty_loop_is_skipped(make: Any, machine: Any) -> None:
    """A job grown by nobody goes on."""
    for template in (
        make.dag("main", make.task("t", "leaf", withParam="[]"), make.task("after", "leaf", "t")),
        {"name": "main", "steps": [[make.task("t", "leaf", withParam="[]")], [make.task("after", "leaf")]]},
    ):
        run = machine(make.workflow(template, make.leaf("leaf"))).go()
        assert next(n for n in run.nodes() if n["displayName"] == "t")["message"] == "Skipped, empty params"
        assert run.running() == ["after"]


def test_a_loop_over_no_list_is_an_error(make: Any, machine: Any) -> None:
    """The value is in the message."""
    run = machine(make.workflow(make.dag("main", make.task("t", "leaf", withParam="nope")), make.leaf("leaf"))).go()
    assert run.phase == "Error"
    assert "could not be parsed as a JSON list: nope" in run.node(".t")["message"]


OUT = {"parameters": [{"name": "o", "valueFrom": {"path": "/o", "default": "none"}}]}


def test_outputs_travel(make: Any, machine: Any) -> None:
    """Between tasks, out of a DAG, out of a loop as a list, and into conditions."""
    inner = make.dag("inner", make.task("a", "leaf"))
    inner["outputs"] = {"parameters": [{"name": "up", "valueFrom": {"parameter": "{{tasks.a.outputs.parameters.o}}"}}]}
    main = make.dag(
        "main",
        make.task("first", "inner"),
        make.task("many", "leaf", "first", withItems=[1, 2]),
        make.task(
            "last", "taker", "first && many",
            {"x": "{{tasks.first.outputs.parameters.up}} {{tasks.many.outputs.parameters.o}} {{tasks.first.status}}"},
            when="{{tasks.first.outputs.parameters.up}} == v",
        ),
    )  # fmt: skip
    run = machine(make.workflow(main, inner, make.leaf("leaf", outputs=OUT), make.leaf("taker", "x"))).go()
    run.end("a", o="v")
    run.end("many(1:2)", o='{"k":2}')
    run.end("many(0:1)", o='{"k":1}')
    value = run.request("taker")["inputs"]["parameters"][0]["value"]
    assert value == 'v [{"k":1},{"k":2}] Succeeded'


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"parameter": "{{tasks.a.outputs.parameters.o}}"}, "v"),
        ({"expression": "tasks.a.outputs.parameters.o + 'x'"}, "vx"),
        ({"parameter": "{{tasks.no.outputs.parameters.o}}", "default": "d"}, "d"),
        ({"parameter": "{{tasks.a.outputs.result}}"}, 'Unable to resolve: "tasks.a.outputs.result"'),
        ({"parameter": "{{workflow.name}}"}, 'Unable to resolve: "wf"'),
    ],
)
def test_outputs_of_a_dag(make: Any, machine: Any, source: Any, value: str) -> None:
    """One reference to one of its tasks, or an expression; a default for what isn't there, else Argo's error."""
    tasks = [make.task("a", "leaf"), make.task("no", "leaf", when="1 == 2")]
    inner = make.dag("inner", *tasks, outputs={"parameters": [{"name": "up", "valueFrom": source}]})
    run = machine(make.workflow(make.dag("main", make.task("t", "inner")), inner, make.leaf("leaf", outputs=OUT))).go()
    run.end("a", o="v")
    node = run.node(".t")
    if run.phase == "Succeeded":
        assert node["outputs"]["parameters"] == [{"name": "up", "value": value}]
    else:
        assert (node["phase"], node["message"]) == ("Error", f"task 'wf.t' errored: {value}")


def test_a_retried_task_speaks_through_its_last_attempt(make: Any, machine: Any) -> None:
    """Its id and exit code are those of the pod that counts, which is where its logs are."""
    given = {"x": "{{tasks.a.id}} {{tasks.a.exitCode}}"}
    main = make.dag("main", make.task("a", "leaf"), make.task("b", "taker", "a", given))
    run = machine(make.workflow(main, make.leaf("leaf", retry=True), make.leaf("taker", "x"))).go()
    run.end("a(0)", 75)
    run.go(6)
    run.end("a(1)")
    assert run.request("taker")["inputs"]["parameters"][0]["value"] == f"{run.node('.a(1)')['id']} 0"


def test_an_output_nobody_wrote_is_an_error(make: Any, machine: Any) -> None:
    """A task that needs the output of one that was skipped must say so, not wait for ever."""
    main = make.dag(
        "main",
        make.task("a", "leaf", when="x == y"),
        make.task("b", "taker", "a", {"x": "{{tasks.a.outputs.parameters.o}}"}),
    )
    run = machine(make.workflow(main, make.leaf("leaf", outputs=OUT), make.leaf("taker", "x"))).go()
    assert (run.phase, run.node(".b")["message"]) == ("Error", "failed to resolve {{tasks.a.outputs.parameters.o}}")


def test_results_travel(make: Any, machine: Any) -> None:
    """What a pod wrote is asked for where something refers to it; of a loop it is a list of what JSON says."""
    tasks = [
        make.task("a", "leaf"),
        make.task("many", "leaf", "a", withItems=[1, 2]),
        make.task("quiet", "leaf", "a"),
        make.task("last", "taker", "many && quiet", {"x": "{{tasks.a.outputs.result}} {{tasks.many.outputs.result}}"}),
    ]
    run = machine(make.workflow(make.dag("main", *tasks), make.leaf("leaf"), make.leaf("taker", "x"))).go()
    run.end("a", result="one")
    run.end("many(0:1)", result='{"n": 1}')
    run.end("many(1:2)", result="2")
    run.end("quiet")
    assert run.request("taker")["inputs"]["parameters"][0]["value"] == 'one [{"n":1},2]'
    assert run.node(".a")["outputs"] == {"exitCode": "0", "result": "one"}
    asked = {request.pod_name: request.wants_result for request in run.requests}
    assert [asked[run.pod(run.node(name))] for name in (".a", ".many(0:1)", ".quiet", ".last")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_result_of_a_loop_that_is_no_json(make: Any, machine: Any) -> None:
    """As in Argo, the task that refers to it is an Error."""
    tasks = [make.task("a", "leaf", withItems=[1]), make.task("b", "taker", "a", {"x": "{{tasks.a.outputs.result}}"})]
    run = machine(make.workflow(make.dag("main", *tasks), make.leaf("leaf"), make.leaf("taker", "x"))).go()
    run.end("a(0:1)", result="hello")
    assert run.node(".b")["message"] == "invalid character 'h' looking for beginning of value"


def _growing(make: Any) -> dict[str, Any]:
    """Elasticity: a helper's list of new learners starts them and the next helper, in the next round."""
    lists = "{{tasks.checkpoint.outputs.parameters.learners}}"
    helper = make.leaf("helper", retry=True)
    helper["outputs"] = {"parameters": [{"name": "learners", "valueFrom": {"path": "/tmp/more", "default": "[]"}}]}
    learn = make.dag(
        "learn",
        make.task("checkpoint", "helper"),
        make.task("learner", given={"id": "{{item}}"}, withParam="{{inputs.parameters.learners}}"),
        make.task("grow", "learn", "checkpoint", {"learners": lists}, when=f"'{lists}' != '[]'"),
        failFast=False,
    )
    learn["inputs"] = {"parameters": [{"name": "learners"}]}
    main = make.dag("main", make.task("learn", given={"learners": "[0,1]"}))
    return dict(make.workflow(main, learn, helper, make.leaf("learner", "id", retry=True)))


def test_recursion_grows_a_running_workflow(make: Any, machine: Any) -> None:
    """A running job takes in learners: each round is a DAG that calls itself with the helper's list."""
    run = machine(_growing(make)).go()
    run.end("checkpoint", learners="[2]")
    assert run.running() == ["checkpoint(0)", "learner(0:0)(0)", "learner(0:2)(0)", "learner(1:1)(0)"]
    run.end("checkpoint", learners="[]")
    assert run.node(".learn.grow.grow")["message"] == "when ''[]' != '[]'' evaluated false"
    for learner in ("learner(0:0)", "learner(0:2)", "learner(1:1)"):
        run.end(learner)
    assert run.phase == "Succeeded"


def test_recursion_has_argos_limit(make: Any, machine: Any) -> None:
    """A DAG that calls itself for ever must not take the engine with it."""
    again = make.task("again", "loop")
    for loop in (
        make.dag("loop", again),
        {"name": "loop", "steps": [[again]]},
        make.dag("loop", {**again, "withItems": [1]}, retryStrategy={"limit": 0}),
    ):
        run = machine(make.workflow(loop)).go()
        assert run.phase in ("Error", "Failed")
        assert sum("Maximum recursion depth exceeded" in n.get("message", "") for n in run.nodes()) >= 1
        assert max(n["name"].count("again") for n in run.nodes()) == 99


# --- steps ------------------------------------------------------------------------------------------------------------


def test_steps_run_group_by_group(make: Any, machine: Any) -> None:
    """Steps of a group side by side, groups one after the other, outputs handed on."""
    steps = [
        [make.task("a", "leaf"), make.task("b", "leaf")],
        [make.task("c", "taker", given={"x": "{{steps.a.outputs.parameters.o}} {{steps.b.exitCode}}"})],
    ]
    workflow = make.workflow({"name": "main", "steps": steps}, make.leaf("leaf", outputs=OUT), make.leaf("taker", "x"))
    run = machine(workflow).go()
    assert run.running() == ["a", "b"]
    run.end("a", o="1")
    assert run.running() == ["b"]
    run.end("b")
    assert run.request("taker")["inputs"]["parameters"][0]["value"] == "1 0"
    run.end("c")
    assert run.phase == "Succeeded"
    assert {n["name"]: n["type"] for n in run.nodes()} == {
        "wf": "Steps", "wf[0]": "StepGroup", "wf[0].a": "Pod", "wf[0].b": "Pod", "wf[1]": "StepGroup", "wf[1].c": "Pod",
    }  # fmt: skip
    assert run.node("[1]")["displayName"] == "[1]"
    assert run.node("[0].a")["children"] == [run.node("[1]")["id"]]
    assert run.node("")["outboundNodes"] == [run.node("[1].c")["id"]]


def test_a_failed_step_ends_the_steps(make: Any, machine: Any) -> None:
    """The group waits for its other steps, then nothing follows."""
    steps = [[make.task("a", "leaf"), make.task("b", "leaf")], [make.task("c", "leaf")]]
    run = machine(make.workflow({"name": "main", "steps": steps}, make.leaf("leaf"))).go()
    run.end("a", 1)
    assert run.phase == "Running"
    run.end("b")
    assert (run.phase, run.workflow["status"]["message"]) == ("Failed", f"child '{run.node('[0].a')['id']}' failed")
    steps[0][0]["continueOn"] = {"failed": True}
    run = machine(make.workflow({"name": "main", "steps": steps}, make.leaf("leaf"))).go()
    run.end("a", 1)
    run.end("b")
    assert run.running() == ["c"]


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_fail_fast(make: Any, machine: Any) -> None:
    """As in Argo: a task that found no room runs even after another has failed, once there is some."""
    for fail_fast in (True, False):
        inner = make.dag("inner", make.task("a", "leaf"), make.task("b", "leaf"), failFast=fail_fast)
        main = make.dag("main", make.task("first", "leaf"), make.task("inner"), failFast=False)
        run = machine(make.workflow(main, inner, make.leaf("leaf"), parallelism=2)).go()
        run.set(parallelism=1)
        run.end("a", 1)
        assert (run.node(".inner")["phase"], run.running()) == ("Running", ["first"])
        run.end("first")
        run.end("b")
        assert (run.node(".inner")["phase"], run.phase) == ("Failed", "Failed")


def test_arguments_and_defaults(make: Any, machine: Any) -> None:
    """Workflow parameters reach templates, defaults fill gaps, numbers of YAML are strings."""
    leaf = make.leaf("leaf", "x", "y")
    leaf["inputs"]["parameters"][1]["default"] = 3
    leaf["container"]["args"] = ["{{inputs.parameters.x}} {{inputs.parameters.y}} {{=asInt(inputs.parameters.y) + 1}}"]
    dag = make.dag("main", make.task("t", "leaf", given={"x": "{{workflow.parameters.p}}"}))
    run = machine(make.workflow(dag, leaf, arguments={"parameters": [{"name": "p", "value": True}]})).go()
    assert run.request("leaf")["container"]["args"] == ["true 3 4"]


def test_progress_and_pending_reason(make: Any, machine: Any) -> None:
    """A pod's own progress counts, and a waiting pod says why in its node's message until it runs."""
    run = machine(make.workflow(make.leaf("main"))).go()
    run.pods["wf"] = PodObservation("Pending", message="QUEUED: 2 of 4 CPUs are free")
    assert run.go().node("")["message"] == "QUEUED: 2 of 4 CPUs are free"
    run.pods["wf"] = PodObservation("Running", progress="3/8")
    node = run.go().node("")
    assert (node["progress"], run.workflow["status"]["progress"], "message" in node) == ("3/8", "3/8", False)
    for nonsense in ("9/8", "x/2", "1", "-1/2", "²/3", "1/" + "9" * 5000):
        run.pods["wf"] = PodObservation("Running", progress=nonsense)
        assert run.go().node("")["progress"] == "3/8"
    run.end("wf")
    assert run.workflow["status"]["progress"] == "8/8"


def test_what_was_not_launched_is_asked_for_again(make: Any, machine: Any) -> None:
    """A runner killed between writing the status and starting the pods loses nothing."""
    run = machine(make.job())
    decision = run.decide()
    run.write(decision)
    again = run.decide()
    assert again.start == decision.start
    assert again.resources == decision.resources
    run.set(suspend=True)
    assert run.decide().start == [], "nothing starts in a suspended Workflow"
    assert len(run.set(suspend=False).go().started) == 3


def test_strangers_are_ended(make: Any, machine: Any) -> None:
    """A pod that no node asked for must not live on."""
    run = machine(make.workflow(make.leaf("main"))).go()
    run.pods["wf-left-over-1"] = PodObservation("Running")
    assert run.decide().terminate == ["wf-left-over-1"]


def test_hashes_are_fnv_1a() -> None:
    """Ids and pod names must be those of Argo, whose tools compute them from a node's name; published test values."""
    assert [fnv1a(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_long_names(make: Any, machine: Any) -> None:
    """Pod names are folder names: the longest that Argo allows must work here, and stay distinct."""
    leaf = make.leaf("t" * 128)
    run = machine(
        make.workflow(make.dag("main", make.task("a", leaf["name"]), make.task("b", leaf["name"])), leaf)
    ).go()
    assert len(set(run.started)) == 2
    assert max(map(len, run.started)) <= 253
