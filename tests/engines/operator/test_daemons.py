"""Daemons: pods that the others go on beside."""

from __future__ import annotations

from typing import Any


def _workflow(make: Any, **more: Any) -> Any:
    server = make.leaf("server", daemon=True, **more)
    given = {"x": "{{tasks.server.ip}}"}
    dag = make.dag("main", make.task("server"), make.task("a", "client", "server", given))
    return make.workflow(dag, server, make.leaf("client", "x"))


def test_others_go_on_when_it_is_up(make: Any, machine: Any) -> None:
    """It stays Running and is told apart by `daemoned`; the others get its address; it ends with its DAG."""
    run = machine(_workflow(make))
    run.write(run.decide())
    assert run.node(".server")["phase"] == "Pending"
    run.go()
    server = run.node(".server")
    assert "taskResultSynced" not in server
    assert (server["phase"], server["daemoned"], server["podIP"]) == ("Running", True, "127.0.0.5")
    assert run.request("client")["inputs"]["parameters"][0]["value"] == "127.0.0.5"
    run.end("a")
    assert (run.phase, run.node(".server")["phase"]) == ("Succeeded", "Succeeded")
    assert "daemoned" not in run.node(".server")
    assert all(pod.ended for pod in run.pods.values())


def test_steps_end_theirs(make: Any, machine: Any) -> None:
    """A daemon of an inner template ends with that template, not with the Workflow."""
    given = {"x": "{{steps.server.ip}}"}
    inner = {"name": "inner", "steps": [[make.task("server")], [make.task("a", "client", given=given)]]}
    main = {"name": "main", "steps": [[make.task("inner")], [make.task("after", "client", given={"x": "-"})]]}
    workflow = make.workflow(main, inner, make.leaf("server", daemon=True), make.leaf("client", "x"))
    run = machine(workflow).go()
    assert run.running() == ["a", "server"]
    run.end("a")
    assert (run.node("[0].inner[0].server")["phase"], run.running()) == ("Succeeded", ["after"])
    run.end("after")
    assert run.phase == "Succeeded"


def test_one_that_dies_has_failed(make: Any, machine: Any) -> None:
    """Whatever its exit code; those who run beside it go on."""
    for code in (0, 3):
        run = machine(_workflow(make)).go()
        run.end("server", code)
        assert (run.node(".server")["phase"], run.running()) == ("Failed", ["a"])
        run.end("a")
        assert run.phase == "Succeeded"


def test_one_that_dies_is_started_again_while_it_is_needed(make: Any, machine: Any) -> None:
    """With a retry strategy, as long as something that came after it runs."""
    run = machine(_workflow(make, retryStrategy={"limit": 3, "retryPolicy": "Always"})).go()
    assert run.node(".server")["daemoned"] is True
    run.end("server(0)", 1)
    assert run.running() == ["a", "server(1)"]
    run.end("a")
    assert (run.phase, run.node(".server")["phase"]) == ("Succeeded", "Succeeded")
    assert [n["phase"] for n in run.nodes("Pod") if n["displayName"].startswith("server")] == ["Failed", "Succeeded"]


def test_depends_on_a_daemon(make: Any, machine: Any) -> None:
    """`.Daemoned` is true of one that is up, `.Succeeded` is not."""
    tasks = [make.task("a", "server"), make.task("b", "leaf", "a.Daemoned"), make.task("c", "leaf", "a.Succeeded")]
    run = machine(make.workflow(make.dag("main", *tasks), make.leaf("server", daemon=True), make.leaf("leaf"))).go()
    assert run.running() == ["a", "b"]
    assert run.node(".c")["phase"] == "Omitted"
    run.end("b")
    assert run.phase == "Succeeded"


def test_nothing_but_a_daemon(make: Any, machine: Any) -> None:
    """Nobody needs it: it is up and may go."""
    server = make.leaf("server", daemon=True)
    for workflow in (make.workflow(server), make.workflow(make.dag("main", make.task("server")), server)):
        run = machine(workflow).go()
        assert run.phase == "Succeeded"


def test_stop_ends_daemons(make: Any, machine: Any) -> None:
    """With the DAG they belong to."""
    run = machine(_workflow(make)).go()
    run.set(shutdown="Stop").go()
    assert (run.phase, run.running()) == ("Failed", [])
    assert run.node(".a")["message"] == "workflow shutdown with strategy:  Stop"
    assert all(pod.ended for pod in run.pods.values())
