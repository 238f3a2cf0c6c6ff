"""What the runner of a Workflow sees to between the passes of its controller."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from ffdl.engines.local import processes
from ffdl.engines.local.addresses import Addresses
from ffdl.engines.local.engine import LocalEngine
from ffdl.engines.local.statusfile import StatusFile
from tests.engines.test_plain_workflow import PATIENCE, ended

GATE = {
    "name": "gate",
    "suspend": {},
    "outputs": {"parameters": [{"name": "answer", "valueFrom": {"supplied": {}}}]},
}


def _shell(name: str, command: str, *inputs: str) -> dict[str, Any]:
    container = {"image": "debian", "command": ["sh", "-c", command]}
    return {"name": name, "container": container, "inputs": {"parameters": [{"name": each} for each in inputs]}}


def _workflow(name: str, *templates: dict[str, Any], **spec: Any) -> dict[str, Any]:
    spec = {"entrypoint": templates[0]["name"], "templates": list(templates), **spec}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


def _until(engine: LocalEngine, job_id: str, name: str, phase: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        workflow = engine.workflow(job_id)
        nodes = workflow["status"].get("nodes", {}).values()
        if any((node["displayName"], node["phase"]) == (name, phase) for node in nodes):
            return workflow
        time.sleep(0.02)
    raise AssertionError(f"{name} never was {phase}: {nodes}")


def test_a_gate_is_opened_with_its_outputs(engine: LocalEngine) -> None:
    """Somebody approves in another terminal; what they say is handed on."""
    given = {"parameters": [{"name": "x", "value": "{{steps.gate.outputs.parameters.answer}}"}]}
    steps = [[{"name": "gate", "template": "gate"}], [{"name": "say", "template": "say", "arguments": given}]]
    say = _shell("say", "echo said {{inputs.parameters.x}}", "x")
    job_id = engine.submit_workflow(_workflow("gated", {"name": "main", "steps": steps}, GATE, say))
    _until(engine, job_id, "gate", "Running")
    engine.resume_node(job_id, "gate", {"answer": "yes"})
    assert ended(engine, job_id).state == "COMPLETED"
    assert [line.text for line in engine.logs(job_id, step="say")] == ["said yes"]


def test_a_daemon_serves_and_goes(engine: LocalEngine) -> None:
    """Its address is known to those who wait for it, and nothing of it is left."""
    given = {"parameters": [{"name": "ip", "value": "{{tasks.server.ip}}"}]}
    tasks = [
        {"name": "server", "template": "server"},
        {"name": "client", "template": "client", "depends": "server", "arguments": given},
    ]
    server = {**_shell("server", "sleep 1000"), "daemon": True}
    client = _shell("client", "echo {{inputs.parameters.ip}}", "ip")
    job_id = engine.submit_workflow(_workflow("served", {"name": "main", "dag": {"tasks": tasks}}, server, client))
    assert ended(engine, job_id).state == "COMPLETED"
    assert [line.text.startswith("127.") for line in engine.logs(job_id, step="client")] == [True]


def test_a_pod_that_no_node_wants_is_ended_by_the_next_runner(engine: LocalEngine, tmp_path: Path) -> None:
    """A runner killed between writing that a node has ended and ending its pod must not leave it running."""
    tasks = [{"name": "nap", "template": "nap"}, {"name": "gate", "template": "gate"}]
    nap = _shell("nap", "sleep 1000")
    job_id = engine.submit_workflow(_workflow("stray", {"name": "main", "dag": {"tasks": tasks}}, nap, GATE))
    workflow = _until(engine, job_id, "nap", "Running")
    folder = tmp_path / "home" / "jobs" / job_id
    runner = _runner(folder)
    os.kill(runner.pid, signal.SIGKILL)
    assert processes.until(lambda: not processes.alive(runner.pid, runner.start), PATIENCE)  # and writes no more
    for node in workflow["status"]["nodes"].values():
        if node["displayName"] == "nap":
            node |= {"phase": "Failed", "finishedAt": node["startedAt"]}
    (folder / "control" / "status.json").write_text(json.dumps(workflow["status"]))
    again = LocalEngine(tmp_path / "home")
    (pod,) = (folder / "pods").iterdir()
    assert processes.until(lambda: (pod / "result.json").exists(), PATIENCE)
    again.stop(job_id)


def _runner(folder: Path) -> processes.Stat:
    """The process that holds the runner's lock: only then it has its name, and the pods' supervisors have another."""
    home = os.fsencode(folder.parent.parent)  # another run of the tests has a job of that name, too
    for process in processes.everything():
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            name = Path(f"/proc/{process.pid}/comm").read_text().strip()
        except OSError:
            continue
        if process.alive and name == "ffdl-runner" and {home, os.fsencode(folder.name)} <= set(words):
            return process
    raise AssertionError("no runner")


def test_a_status_is_written_as_it_is(tmp_path: Path) -> None:
    """Whatever was put into words before, the file says what the status says now."""
    path = tmp_path / "status.json"
    file = StatusFile(path)
    first = {"id": "a", "name": "ä", "children": ["b"]}
    for status in (
        {},
        {"phase": "Running"},
        {"nodes": {}},
        {"phase": "Running", "nodes": {"a": first, "b": {"id": "b"}}},
        {"phase": "Running", "nodes": {"a": first, "b": {"id": "b", "phase": "Failed"}}, "message": "m"},
        {"phase": "Running", "nodes": {"a": {**first, "phase": "Failed"}}},
    ):
        file.write(status)
        assert json.loads(path.read_text()) == status


def test_addresses_are_given_again(tmp_path: Path) -> None:
    """A loop of more runs than a job has addresses comes to its end; names that stay keep theirs."""
    book, hosts = tmp_path / "addresses.json", tmp_path / "hosts"
    addresses = Addresses(book, hosts)
    kept = addresses.of("learner-0", "job", 3)
    seen = set()
    for number in range(5000):
        address = addresses.of(f"pod-{number}", "", 3)
        seen.add(address)
        assert address != kept
        addresses.forget(f"pod-{number}")
    assert f"{kept}\tlearner-0.job learner-0\n" in hosts.read_text()
    assert len(hosts.read_text().splitlines()) < 100
    assert Addresses(book, hosts).of("learner-0", "job", 3) == kept
