"""`parallelism` and `failFast`: how much runs at once, and what no longer starts."""

from __future__ import annotations

from typing import Any


def test_of_the_workflow(make: Any, machine: Any) -> None:
    """`spec.parallelism` bounds the pods at once, and all of them get their turn."""
    dag = make.dag("main", make.task("t", "leaf", withItems=list(range(5))))
    run = machine(make.workflow(dag, make.leaf("leaf", retry=True), parallelism=2)).go()
    for ended in range(5):
        assert len(run.running()) == min(2, 5 - ended)
        run.end(run.running()[0])
    assert run.phase == "Succeeded"


def test_a_full_workflow_makes_no_nodes(make: Any, machine: Any) -> None:
    """A DAG that could start nothing is no node yet, as in Argo: it counts for no `parallelism` around it."""
    inner = make.dag("inner", make.task("a", "leaf"))
    main = make.dag("main", make.task("x", "inner"), make.task("y", "inner"))
    run = machine(make.workflow(main, inner, make.leaf("leaf"), parallelism=1)).go()
    assert sorted(n["name"] for n in run.nodes()) == ["wf", "wf.x", "wf.x.a"]
    run.end("a")
    run.end("a")
    assert run.phase == "Succeeded"


def test_of_a_template(make: Any, machine: Any) -> None:
    """It bounds what runs directly beneath, pods and nested templates alike, in DAGs and in steps."""
    inner = make.dag("inner", make.task("a", "leaf"), make.task("b", "leaf"))
    tasks = [make.task(name, "inner") for name in "xyz"]
    for main in (make.dag("main", *tasks, parallelism=2), {"name": "main", "steps": [tasks], "parallelism": 2}):
        run = machine(make.workflow(main, inner, make.leaf("leaf"))).go()
        assert sorted(n["displayName"] for n in run.nodes("DAG") if n["name"] != "wf") == ["x", "y"]
        assert run.running() == ["a", "a", "b", "b"]
        for name in [n["name"] for n in run.nodes("Pod") if ".x." in n["name"]]:
            run.end_named(name)
        assert sorted(n["displayName"] for n in run.nodes("DAG") if n["name"] != "wf") == ["x", "y", "z"]
        while run.running():
            run.end_named(next(n["name"] for n in run.nodes("Pod") if n["phase"] == "Running"))
        assert run.phase == "Succeeded"


def test_of_nested_templates(make: Any, machine: Any) -> None:
    """Each level has its own: two DAGs at once, one pod in each."""
    inner = make.dag("inner", make.task("a", "leaf", withItems=[0, 1, 2]), parallelism=1)
    main = make.dag("main", make.task("t", "inner", withItems=[0, 1, 2]), parallelism=2)
    run = machine(make.workflow(main, inner, make.leaf("leaf"))).go()
    most, ended = 0, 0
    while run.running():
        most = max(most, len(run.running()))
        run.end_named(next(n["name"] for n in run.nodes("Pod") if n["phase"] == "Running"))
        ended += 1
    assert (run.phase, most, ended) == ("Succeeded", 2, 9)


def test_fail_fast_of_a_template(make: Any, machine: Any) -> None:
    """A failed child ends its template once no pod of it runs; what has not started never will."""
    task = make.task("t", "leaf", withItems=[0, 1, 2, 3])
    for main in (
        make.dag("main", task, parallelism=2) | {"failFast": True},
        {"name": "main", "steps": [[task]], "parallelism": 2, "failFast": True},
    ):
        run = machine(make.workflow(main, make.leaf("leaf"))).go()
        run.end("t(0:0)", 1)
        assert (run.phase, run.running()) == ("Running", ["t(1:1)"])
        run.end("t(1:1)")
        message = "template has failed or errored children and failFast enabled"
        assert (run.phase, run.workflow["status"]["message"]) == ("Failed", message)
        assert len(run.started) == 2
        assert {n["message"] for n in run.nodes("StepGroup")} <= {message}


def test_a_dag_goes_on_after_a_loop_was_cut_short(make: Any, machine: Any) -> None:
    """`failFast` leaves the loop as it is, and nothing that comes last: neither keeps the DAG around it waiting."""
    loop = make.task("x", "leaf", withItems=[1, 2])
    inner = make.dag("inner", loop, parallelism=1) | {"failFast": True}
    for depends, phase in (("a", "Failed"), ("a.Failed", "Succeeded")):
        main = make.dag("main", make.task("a", "inner"), make.task("b", "leaf", depends))
        run = machine(make.workflow(main, inner, make.leaf("leaf"))).go()
        run.end("x(0:1)", 1)
        if phase == "Succeeded":
            run.end("b")
        assert (run.phase, run.node(".a")["phase"]) == (phase, "Failed")


def test_nothing_more(make: Any, machine: Any) -> None:
    """A `parallelism` set to 0 on the way starts nothing, until somebody changes it."""
    main = make.dag("main", make.task("a", "leaf"), make.task("b", "leaf", "a"))
    run = machine(make.workflow(main, make.leaf("leaf"), parallelism=1)).go()
    run.set(parallelism=0).end("a")
    assert (run.phase, run.running()) == ("Running", [])
    run.set(parallelism=1).go()
    assert run.running() == ["b"]
