"""Staying with a job while its cluster comes and goes, and while others do something else with it meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ffdl.engines.argo.access import CONFIG_MAPS, PODS, Api
from ffdl.engines.argo.engine import ArgoEngine
from ffdl.engines.base import EngineError, Refused
from ffdl.learner import contract
from tests.engines.argo.plain import compiled
from tests.engines.argo.test_access import refuse
from tests.steps.api_server import ApiServer, Handler

JOB = "training-abc"
WAIT = 20.0
TENANT = {"version": "1"}
IS_JOB = {contract.ANNOTATION_SUMMARY: "{}"}


@pytest.fixture
def engine(server: ApiServer, kubeconfig: Path) -> ArgoEngine:
    server.put("configmaps", {"metadata": {"name": "ffdl-tenant"}, "data": TENANT})
    return ArgoEngine(kubeconfig=str(kubeconfig))


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def put(server: ApiServer, phase: str, suspend: bool | None = None, **nodes: str) -> None:
    """The job's Workflow; each of `nodes` is a template's only pod and its phase."""
    labels = {contract.LABEL_JOB: JOB}
    found: dict[str, Any] = {
        name: {
            "id": f"{JOB}-{name}",
            "name": f"{JOB}.{name}",
            "displayName": name,
            "type": "Pod",
            "templateName": name,
            "phase": state,
            "startedAt": "2026-01-01T00:00:00Z",
            "inputs": {"parameters": [{"name": "index", "value": "0"}]},
        }
        for name, state in nodes.items()
    }
    metadata = {"name": JOB, "labels": labels, "annotations": {**IS_JOB, contract.ANNOTATION_RELEASED: "true"}}
    spec = {} if suspend is None else {"suspend": suspend}
    server.put("workflows", {"metadata": metadata, "spec": spec, "status": {"phase": phase, "nodes": found}})
    for name, state in nodes.items():
        pod = contract.pod_name(JOB, found[name])
        if state in ("Pending", "Running") and ("pods", pod) not in server.objects:
            server.put("pods", {"metadata": {"name": pod, "labels": {**labels, contract.LABEL_ROLE: name}}})


def workflow(server: ApiServer) -> dict[str, Any]:
    return server.objects["workflows", JOB]


def ended(future: Future[Any]) -> Any:
    return future.result(WAIT)


def when(server: ApiServer, verb: str, plural: str) -> None:
    """Returns when that has been asked for."""
    before, deadline = server.count(verb, plural), time.monotonic() + WAIT
    while server.count(verb, plural) == before:
        assert time.monotonic() < deadline, f"nobody wants to {verb} {plural}"
        time.sleep(0.01)


def test_a_halt_that_was_taken_back_ends_and_touches_nothing_more(
    server: ApiServer, engine: ArgoEngine, aside: ThreadPoolExecutor
) -> None:
    """By `ffdl resume` or in Argo's UI: the pods that come then are wanted."""
    put(server, "Running", learner="Running", checkpoint="Running")
    halting = aside.submit(engine.halt, JOB, timeout=WAIT)
    when(server, "watch", "workflows")
    put(server, "Running", learner="Pending", checkpoint="Pending")
    with pytest.raises(EngineError, match=f"{JOB} was resumed meanwhile: it is not halted"):
        ended(halting)
    assert server.count("delete", "pods") == 0


def test_a_halt_outlives_a_server_that_restarts(
    server: ApiServer, engine: ArgoEngine, aside: ThreadPoolExecutor
) -> None:
    """The halt goes on in the cluster; who waits for the GPUs is to be told when they are free."""
    put(server, "Running", learner="Running", checkpoint="Running")
    halting = aside.submit(engine.halt, JOB, timeout=WAIT)
    when(server, "watch", "workflows")
    server.stop()
    put(server, "Running", suspend=True, learner="Failed", checkpoint="Succeeded")
    for name in [name for plural, name in server.objects if plural == "pods"]:
        server.remove("pods", name)
    time.sleep(1.5)  # longer than a look at the job, which goes wrong
    server.start()
    assert ended(halting) is None


@pytest.mark.parametrize("status", [401, 403, 500])
def test_the_end_of_a_job_is_told_though_its_record_can_not_be_read_just_then(
    server: ApiServer, engine: ArgoEngine, aside: ThreadPoolExecutor, status: int
) -> None:
    """`ffdl wait && ffdl download` must not fail at the very moment at which the job is COMPLETED."""
    put(server, "Running", learner="Running", checkpoint="Running")
    watching = aside.submit(lambda: [seen.state for seen in engine.watch(JOB, WAIT)])
    when(server, "watch", "workflows")
    for _ in range(1 if status < 500 else 20):
        server.fail("get", "configmaps", refuse(status))
    put(server, "Succeeded", learner="Succeeded", checkpoint="Succeeded")
    assert ended(watching)[-1] == "COMPLETED"


def test_a_halting_job_is_watched_though_its_pods_can_not_be_listed_just_then(
    server: ApiServer, engine: ArgoEngine, aside: ThreadPoolExecutor
) -> None:
    """A server that has just started does not know yet what its users may do."""
    put(server, "Running", learner="Running", checkpoint="Running")

    def until_halted() -> str:
        return next(seen.state for seen in engine.watch(JOB, WAIT) if seen.state == "HALTED")

    watching = aside.submit(until_halted)
    when(server, "watch", "workflows")
    server.fail("list", "pods", refuse(403, "Forbidden", "not yet"))
    put(server, "Running", suspend=True, learner="Pending", checkpoint="Pending")
    for name in [name for plural, name in server.objects if plural == "pods"]:
        server.remove("pods", name)
    assert ended(watching) == "HALTED"


def test_a_job_whose_helper_waits_for_room_can_be_stopped(server: ApiServer, engine: ArgoEngine) -> None:
    """The helper stops a job; one that has not started hears of nothing."""
    put(server, "Running", download="Pending", checkpoint="Pending")
    engine.stop(JOB)
    assert workflow(server)["spec"]["shutdown"] == "Stop"
    assert workflow(server)["metadata"]["annotations"][contract.ANNOTATION_REASON] == "stopped"


def test_a_job_whose_helper_runs_is_stopped_by_it(server: ApiServer, engine: ArgoEngine) -> None:
    """Its learners save before they end."""
    put(server, "Running", learner="Running", checkpoint="Running")
    engine.stop(JOB)
    assert workflow(server)["metadata"]["annotations"][contract.ANNOTATION_STOP] == "true"
    assert "shutdown" not in workflow(server)["spec"]


@pytest.mark.parametrize("verb", ["halt", "resume", "stop"])
def test_half_a_submission_is_not_let_go(server: ApiServer, engine: ArgoEngine, verb: str) -> None:
    """Its files are not all there: it would wait for them until its start_timeout."""
    metadata = {"name": JOB, "labels": {contract.LABEL_JOB: JOB}, "annotations": IS_JOB}
    server.put("workflows", {"metadata": metadata, "spec": {"suspend": True}})
    with pytest.raises(Refused, match=f"not been submitted whole: there is nothing to {verb}; `ffdl delete {JOB}`"):
        getattr(engine, verb)(JOB)
    assert workflow(server)["spec"] == {"suspend": True}


def test_a_submission_that_may_have_been_done_says_so(
    server: ApiServer, engine: ArgoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away with the last call, or its answer: nobody knows whether the job runs."""

    def away(handler: Handler) -> None:
        threading.Thread(target=server.stop, daemon=True).start()
        handler.close_connection = True

    server.fail("patch", "workflows", away)
    with pytest.raises(EngineError, match=f"; {JOB} may be there all the same: `ffdl delete {JOB}`"):
        engine.submit(compiled("true"), JOB)


def test_a_node_of_a_pipeline_outlives_its_cluster(server: ApiServer, kubeconfig: Path, tmp_path: Path) -> None:
    """Its job trains on: the next pod of the node finds it again. What the cluster refuses for good ends the node."""
    environment = {"KUBECONFIG": str(kubeconfig), contract.TASK_NODE_ENV: "uid/pipeline.train", "HOME": str(tmp_path)}

    def task() -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("ffdl"), "--engine", "argo", "task"]
        environ = {**os.environ, **environment}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    server.fail("get", "workflows", refuse(422, "Invalid", "no"))
    assert task().returncode == 4
    server.stop()
    ended = task()
    assert ended.returncode == contract.EXIT_AGAIN
    assert "connection refused" in ended.stderr
    assert "to the next pod of this node" in ended.stderr


def test_a_change_that_came_between_is_no_reason_to_give_up(server: ApiServer, api: Api) -> None:
    """Kubernetes asks for it to be tried again: an object that has changed, a quota that two wanted to count in."""
    conflict = refuse(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
    server.fail("create", "configmaps", conflict)
    api.create(CONFIG_MAPS, {"metadata": {"name": "c"}})
    server.fail("patch", "configmaps", conflict)
    assert api.patch(CONFIG_MAPS, "c", {"data": {"k": "v"}})["data"] == {"k": "v"}
    server.put("pods", {"metadata": {"name": "p"}})
    with pytest.raises(EngineError, match="Conflict as told"):
        api.patch(PODS, "p", {"metadata": {"finalizers": [], "resourceVersion": "1"}})
    assert server.count("patch", "pods") == 1
