"""A real Argo: Workflows created in a namespace, watched, and recorded event by event."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minio import Minio

from ffdl.engines.argo.engine import ArgoEngine
from tests.behaviours.kubernetes_api import Api, ApiError
from tests.behaviours.tenant import Tenant, tenant
from tests.cluster.cluster import Cluster
from tests.cluster.components import S3_KEYS

from . import trees
from .case import Case
from .record import Record, compact, complete, news_of_pods

AT_ONCE = 7
_TERMINAL = ("Succeeded", "Failed", "Error")
_SETTLE = 2.0  # seconds after a Workflow's end in which its last changes are still written
_RIGHTS = {  # of the account that pods have when nobody names one
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "differential"},
    "rules": [
        {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps", "services"], "verbs": ["create", "get", "patch", "delete"]},
    ],
}
_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "differential"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "differential"},
    "subjects": [{"kind": "ServiceAccount", "name": "default"}],
}


@contextlib.contextmanager
def namespace() -> Iterator[Api]:
    """One of its own, in which a Workflow that names no account can run."""
    with tenant("differential") as found:
        objects = {"apiVersion": "v1", "kind": "List", "items": [_RIGHTS, _BINDING]}
        found.cluster.kubectl("apply", "-n", found.namespace, "-f", "-", stdin=json.dumps(objects))
        keep_artifacts(found)
        yield found.api


def keep_artifacts(tenant: Tenant) -> None:
    """Makes a bucket of the cluster's own S3 server the place of artifacts that name none."""
    place, (key, secret) = tenant.cluster.place, S3_KEYS
    address = place.s3.partition("://")[2]
    Minio(address, key, secret, secure=False).make_bucket(tenant.namespace)
    reference = {name: {"name": "artifacts", "key": name} for name in ("accessKeySecret", "secretKeySecret")}
    store = {"s3": {"endpoint": address, "bucket": tenant.namespace, "insecure": True, **reference}}
    metadata = {
        "name": "artifact-repositories",
        "annotations": {"workflows.argoproj.io/default-artifact-repository": "default"},
    }
    kept = {"accessKeySecret": key, "secretKeySecret": secret}
    tenant.api.create("secrets", {"metadata": {"name": "artifacts"}, "stringData": kept})
    tenant.api.create("configmaps", {"metadata": metadata, "data": {"default": json.dumps(store)}})


@dataclass
class _Run:
    case: Case
    record: Record
    created: float
    before: dict[str, Any]
    acts: list[dict[str, Any]]
    over: float | None = None


def run(
    api: Api,
    cases: Iterable[Case],
    done: Callable[[Record, float], None],
    go_on: Callable[[], bool] = lambda: True,
    at_once: int = AT_ONCE,
) -> None:
    """Runs `cases`, `at_once` of them at a time; `done` gets each record and the seconds it took.

    No further one is started once `go_on()` is false.
    """
    _Runner(api, done).run(iter(cases), go_on, at_once)


class _Runner:
    def __init__(self, api: Api, done: Callable[[Record, float], None]) -> None:
        self.api, self.done = api, done
        self.cluster = Cluster()
        self.engine = ArgoEngine(api.namespace, kubeconfig=str(api.kubeconfig))
        self.seen: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.running: dict[str, _Run] = {}

    def run(self, waiting: Iterator[Case], go_on: Callable[[], bool], at_once: int) -> None:
        threading.Thread(target=self._watch, daemon=True).start()
        more = True
        while more or self.running:
            while more and len(self.running) < at_once:
                case = next(waiting, None) if go_on() else None
                if case is None:
                    more = False
                else:
                    self._start(case)
            with contextlib.suppress(queue.Empty):
                self._note(self.seen.get(timeout=0.5))
            for one in list(self.running.values()):
                self._look(one)

    def _watch(self) -> None:
        version = ""
        while True:
            query = {"watch": "1", "timeoutSeconds": "300"} | ({"resourceVersion": version} if version else {})
            try:
                for event in self.api.stream(self.api.path("workflows"), **query):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    self.seen.put(event["object"])
            except (ApiError, OSError, ValueError):
                time.sleep(0.5)

    def _start(self, case: Case) -> None:
        for one in case.objects:
            self.api.create(_plural(one), one)
        try:
            made = self._create(case)
        except ApiError as error:
            if error.status != 422:  # Kubernetes' "invalid"
                raise
            said = json.loads(str(error).partition(": ")[2])["message"]
            self.done(Record(case.digest, case.workflow, case.objects, refused=said), 0.0)
            return
        record = Record(case.digest, {**made, "status": {}}, case.objects)
        self.running[case.name] = _Run(case, record, time.time(), {}, list(case.acts))

    def _create(self, case: Case) -> dict[str, Any]:
        if case.compiled is None:
            return self.api.create("workflows", case.workflow)
        self.engine.submit(case.compiled, case.name)
        return self.api.get("workflows", case.name)

    def _note(self, workflow: dict[str, Any]) -> None:
        one = self.running.get(workflow["metadata"]["name"])
        status = workflow.get("status") or {}
        if one is None or workflow["metadata"]["uid"] != one.record.workflow["metadata"]["uid"]:
            return
        if status.get("startedAt"):
            start = trees.seconds(status["startedAt"])
            if pods := news_of_pods(one.before, status, start):
                one.record.events.append({"at": round(time.time() - start, 1), "pods": pods})
            self._act(one, workflow, start)
        one.before = status
        if status.get("phase") in _TERMINAL and one.over is None:
            one.over = time.time()

    def _act(self, one: _Run, workflow: Mapping[str, Any], start: float) -> None:
        """What the case says is done to the Workflow now."""
        while one.acts and _holds(one.acts[0], workflow["status"]):
            act = one.acts.pop(0)
            if "delete" in act:
                for name in _pods(self.api, one.case.name, workflow["status"], act["delete"]):
                    self.api.delete("pods", name, grace=0)
                continue
            event = {key: act[key] for key in ("node", "patch", "resume") if key in act}
            one.record.events.append({"at": round(time.time() - start, 1), **event})
            if "resume" in act:
                self._argo(*resuming(one.case.name, act["node"], act["resume"]))
            else:
                self.api.patch("workflows", one.case.name, act["patch"])

    def _argo(self, *arguments: str) -> None:
        place = self.cluster.place
        command = [str(place.tools / "argo"), *arguments, "-n", self.api.namespace, "--kubeconfig", place.kubeconfig]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.cluster.env()})
        if done.returncode:
            print(f"argo {' '.join(arguments)}: {done.stderr.strip()}", flush=True)

    def _look(self, one: _Run) -> None:
        now = time.time()
        over = one.over is not None and now > one.over + _SETTLE
        if not over and now < one.created + one.case.seconds:
            return
        one.record.ended = one.over is not None
        if start := one.before.get("startedAt"):
            complete(one.record.events, one.before, trees.seconds(start))
        one.record.workflow, one.record.status = compact(one.record.workflow, one.before)
        del self.running[one.case.name]
        with contextlib.suppress(ApiError):
            self.api.delete("workflows", one.case.name, grace=0)
            for other in one.case.objects:
                self.api.delete(_plural(other), other["metadata"]["name"])
        if one.case.compiled is not None:
            self.engine.delete(one.case.name)
        self.done(one.record, (one.over or now) - one.created)


def _plural(one: Mapping[str, Any]) -> str:
    return f"{one['kind'].lower()}s"


def _holds(act: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    nodes = (status.get("nodes") or {}).values()
    return any(node["displayName"] == act["node"] and node["phase"] == act["phase"] for node in nodes)


def _pods(api: Api, workflow: str, status: Mapping[str, Any], displayed: str) -> list[str]:
    keys = [key for key, node in status["nodes"].items() if node["displayName"] == displayed]
    pods = api.list("pods", f"workflows.argoproj.io/workflow={workflow}")
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["annotations"].get("workflows.argoproj.io/node-id") in keys
    ]


def resuming(workflow: str, node: str, how: dict[str, Any] | str) -> list[str]:
    """The arguments of the `argo` command that lets suspended nodes go on."""
    if how == "all":
        return ["resume", workflow]
    selected = ["--node-field-selector", f"displayName={node}"]
    if not isinstance(how, dict) or not how:
        return ["resume", workflow, *selected]
    options = [f"--{name}={how[name]}" for name in ("phase", "message") if name in how]
    outputs = [f"--output-parameter={name}={value}" for name, value in how.get("outputs", {}).items()]
    return ["node", "set", workflow, *selected, *options, *outputs]
