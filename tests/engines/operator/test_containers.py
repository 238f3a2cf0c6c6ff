"""Pods of more than a main container: sets with a node each, sidecars, scripts."""

from __future__ import annotations

from typing import Any

from ffdl.engines.local.pod import ContainerEnd, PodObservation


def diamond(make: Any, **more: Any) -> dict[str, Any]:
    """A task with a set of four containers, and a task after it."""
    several = [
        {"name": name, "image": "i", "command": ["c"], **({"dependencies": after} if after else {})}
        for name, after in (("a", []), ("b", ["a"]), ("c", ["a"]), ("main", ["b", "c"]))
    ]
    made = {"name": "set", "containerSet": {"containers": several, **more}}
    main = make.dag("main", make.task("s", "set"), make.task("after", "leaf", "s"))
    return make.workflow(main, made, make.leaf("leaf"))


def children(run: Any, name: str) -> list[str]:
    return sorted(run.workflow["status"]["nodes"][key]["displayName"] for key in run.node(name).get("children") or [])


def test_each_container_of_a_set_has_a_node(make: Any, machine: Any) -> None:
    """Below its pod's, in the order in which they wait for each other; what follows hangs on the last of them."""
    run = machine(diamond(make)).go()
    node = run.node(".s.b")
    assert (node["type"], node["displayName"], node["boundaryID"]) == ("Container", "b", run.node(".s")["id"])
    assert node["templateName"] == "set"
    assert "taskResultSynced" not in node
    assert children(run, ".s") == ["a"]
    assert children(run, ".s.a") == ["b", "c"]
    assert children(run, ".s.b") == children(run, ".s.c") == ["main"]
    assert {n["phase"] for n in run.nodes("Container")} == {"Running"}
    ends = {name: ContainerEnd(0, "Completed") for name in ("a", "b", "c", "main")}
    run.tell("s", "Succeeded", exit_code=0, containers=ends)
    assert {n["phase"] for n in run.nodes("Container")} == {"Succeeded"}
    assert children(run, ".s.main") == ["after"]
    assert run.node(".s")["outputs"] == {"exitCode": "0"}
    assert run.node("")["progress"] == "5/6"
    assert run.end("after").phase == "Succeeded"


def test_a_failed_container_in_argos_words(make: Any, machine: Any) -> None:
    """The one that failed is told from those that were never run."""
    run = machine(diamond(make)).go()
    run.tell("s", "Running", containers={"a": ContainerEnd(0, "Completed")})
    assert [n["phase"] for n in run.nodes("Container")] == ["Succeeded", "Running", "Running", "Running"]
    ends = {
        "a": ContainerEnd(0, "Completed"),
        "b": ContainerEnd(1),
        "c": ContainerEnd(143),
        "main": ContainerEnd(64, detail='dependency "b" exited with non-zero code: 1'),
    }
    run.tell("s", "Failed", exit_code=64, message="b: Error (exit code 1)", containers=ends)
    said = {n["displayName"]: (n["phase"], n.get("message", "")) for n in run.nodes("Container")}
    assert said == {
        "a": ("Succeeded", ""),
        "b": ("Failed", "b: Error (exit code 1): "),
        "c": ("Failed", "c: Error (exit code 143): "),
        "main": ("Error", 'main: Error (exit code 64): dependency "b" exited with non-zero code: 1'),
    }
    assert (run.node(".s")["phase"], run.node(".s")["message"]) == ("Failed", "b: Error (exit code 1)")
    assert run.node(".after")["phase"] == "Omitted"


def test_a_deleted_set(make: Any, machine: Any) -> None:
    """No container is left to wait for."""
    run = machine(diamond(make)).go().tell("s", "Error", exit_code=-1, message="pod deleted")
    assert {(n["phase"], n["message"]) for n in run.nodes("Container")} == {("Error", "container deleted")}
    assert run.phase == "Error"


def test_a_stopped_set(make: Any, machine: Any) -> None:
    """Containers end with their pod, in its words."""
    run = machine(diamond(make)).go().set(shutdown="Stop").go()
    ends = {(n["phase"], n["message"]) for n in [*run.nodes("Container"), run.node(".s")]}
    assert ends == {("Failed", "workflow shutdown with strategy:  Stop")}
    assert run.phase == "Failed"


def test_a_set_that_is_tried_again(make: Any, machine: Any) -> None:
    """Each attempt has a pod and containers of its own."""
    workflow = diamond(make)
    workflow["spec"]["templates"][1]["retryStrategy"] = {"limit": 1}
    run = machine(workflow).go()
    run.tell("s(0)", "Failed", exit_code=1, containers={"a": ContainerEnd(1)})
    assert run.node(".s(0).a")["phase"] == "Failed"
    ends = {name: ContainerEnd(0, "Completed") for name in ("a", "b", "c", "main")}
    run.tell("s(1)", "Succeeded", exit_code=0, containers=ends)
    assert run.node(".s")["phase"] == "Succeeded"
    assert run.running() == ["after"]


def test_volumes_of_every_container_reach_the_pod(make: Any, machine: Any) -> None:
    """A set's own, a sidecar's and a script's; `mirrorVolumeMounts` shows a sidecar what main has."""
    volumes = [{"name": name, "emptyDir": {}} for name in ("a", "b", "c")]
    leaf = {
        "name": "main",
        "script": {
            "image": "i",
            "command": ["sh"],
            "source": "echo {{workflow.name}}",
            "volumeMounts": [{"name": "a", "mountPath": "/a"}],
        },
        "sidecars": [
            {"name": "s", "image": "i", "command": ["c"], "volumeMounts": [{"name": "b", "mountPath": "/b"}]},
            {"name": "m", "image": "i", "command": ["c"], "mirrorVolumeMounts": True},
        ],
    }
    request = machine(make.workflow(leaf, volumes=volumes)).go().request("wf")
    assert [volume["name"] for volume in request["volumes"]] == ["a", "b"]
    assert request["script"]["source"] == "echo wf"
    assert request["sidecars"][1]["volumeMounts"] == [{"name": "a", "mountPath": "/a"}]


def test_a_daemon_is_up_once_it_is_ready(make: Any, machine: Any) -> None:
    """What waits for a server must not start before the server answers."""
    main = make.dag("main", make.task("server", "daemon"), make.task("client", "leaf", "server"))
    run = machine(make.workflow(main, make.leaf("daemon", daemon=True), make.leaf("leaf")))
    run.write(run.decide())
    run.pods[run.last.start[0].pod_name] = PodObservation("Running", ready=False, ip="127.0.16.2")
    run.go()
    assert run.node(".server")["phase"] == "Pending"
    run.tell("server", "Running", ip="127.0.16.2")
    assert run.node(".server")["podIP"] == "127.0.16.2"
    assert "client" in run.running()
