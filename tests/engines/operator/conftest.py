"""A machine in which pods end as a test says, for a controller that is a pure function."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ffdl.engines.local.operator import Decision, Memory, PodRequest, reconcile
from ffdl.engines.local.pod import PodObservation

AGAIN = "lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [-1, 75, 143]"
AGAIN += " || (asInt(lastRetry.exitCode) == 137 && !(lastRetry.message contains 'OOMKilled'))"
RETRY = {
    "retryPolicy": "Always",
    "limit": "1000000",
    "backoff": {"duration": "5s", "factor": 1},
    "expression": AGAIN,
}


class Make:
    """Workflows in few words."""

    AGAIN, RETRY = AGAIN, RETRY

    def workflow(self, *templates: dict[str, Any], name: str = "wf", **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": name, "namespace": "ffdl", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"entrypoint": templates[0]["name"], "templates": list(templates), **spec},
        }

    def leaf(self, name: str, *inputs: str, retry: Any = None, **more: Any) -> dict[str, Any]:
        template: dict[str, Any] = {"name": name, "container": {"image": "i", "command": ["c"]}, **more}
        if inputs:
            template["inputs"] = {"parameters": [{"name": i} for i in inputs]}
        if retry:
            template["retryStrategy"] = copy.deepcopy(RETRY) if retry is True else retry
        return template

    def dag(self, name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
        dag = {"tasks": list(tasks)}
        if "failFast" in more:
            dag["failFast"] = more.pop("failFast")
        return {"name": name, "dag": dag, **more}

    def task(self, name: str, template: str = "", depends: str = "", given: Any = None, **more: Any) -> dict[str, Any]:
        task: dict[str, Any] = {"name": name, "template": template or name, **more}
        if depends:
            task["depends"] = depends
        if given:
            task["arguments"] = {"parameters": [{"name": k, "value": v} for k, v in given.items()]}
        return task

    def job(self, learners: int = 2, **spec: Any) -> dict[str, Any]:
        """A training job as the compiler makes it, in short."""
        patch = '{"hostname":"{{workflow.name}}-{{inputs.parameters.index}}"}'
        service = {"action": "apply", "manifest": "name: {{workflow.name}}"}
        indices = "[" + ",".join(map(str, range(learners))) + "]"
        return self.workflow(
            self.dag(
                "training",
                self.task("download"),
                self.task("network"),
                self.task("checkpoint"),
                self.task("learner", depends="download && network", given={"index": "{{item}}"}, withParam=indices),
                self.task("store-results", "store", "learner && checkpoint", {"outcome": "Succeeded"}),
                failFast=False,
            ),
            self.leaf("download", retry=True),
            {
                "name": "network",
                "resource": service,
                "retryStrategy": RETRY,
            },
            self.leaf("checkpoint", retry=True),
            self.leaf(
                "learner",
                "index",
                retry=True,
                podSpecPatch=patch,
            ),
            self.leaf("store", "outcome", retry=True),
            {
                "name": "exit",
                "steps": [
                    [
                        self.task(
                            "store-results",
                            "store",
                            given={"outcome": "{{workflow.status}}"},
                            when="{{workflow.status}} != Succeeded",
                        )
                    ]
                ],
            },
            onExit="exit",
            **spec,
        )


class Machine:
    """Keeps the Workflow, its pods and the time; every pass checks what must hold of any."""

    def __init__(self, workflow: dict[str, Any]) -> None:
        self.workflow, self.now = workflow, 1_750_000_000.0
        self.pods: dict[str, PodObservation] = {}
        self.requests: list[PodRequest] = []
        self.started: list[str] = []
        self.last = Decision({})
        self._memory, self._remembered = Memory(), Decision({})
        self._read: Any = None
        self._kept: Any = None

    def decide(self) -> Decision:
        """A pass whose decision nobody carries out, not even by writing the status."""
        before = copy.deepcopy(self.workflow)
        decision = reconcile(self.workflow, self.pods, self.now)
        assert self.workflow == before, "the input was changed"
        self._remember(decision)
        nodes = decision.status.get("nodes") or {}
        for request in [*decision.start, *decision.resources]:
            assert nodes[request.node_id]["phase"] in ("Pending", "Running"), "a pod for a node that has ended"
            assert request.pod_name not in self.pods, "a pod is asked for a second time"
        assert len({r.pod_name for r in decision.start}) == len(decision.start)
        for old in ((before.get("status") or {}).get("nodes") or {}).values():
            new = nodes[old["id"]]
            if old["phase"] in ("Succeeded", "Failed", "Error", "Skipped", "Omitted"):
                assert (new["phase"], new["finishedAt"]) == (old["phase"], old["finishedAt"]), "an ended node changed"
        return decision

    def _remember(self, decision: Decision) -> None:
        """Runners have a memory, and decide the same."""
        known = self._kept if self.workflow.get("status") is self._read else self.workflow.get("status")
        remembered = reconcile({**self.workflow, "status": known}, self.pods, self.now, self._memory)
        assert remembered == decision, "the memory is wrong"
        self._remembered = remembered

    def write(self, decision: Decision) -> None:
        self.last = decision
        self._read, self._kept = json.loads(json.dumps(decision.status)), self._remembered.status
        self.workflow = {**self.workflow, "status": self._read}

    def launch(self, decision: Decision) -> None:
        for request in decision.start:
            self.requests.append(request)
            self.started.append(request.pod_name)
            self.pods[request.pod_name] = PodObservation("Running", ip="127.0.0.5", started_at=self.now)
        for resource in decision.resources:
            self.started.append(resource.pod_name)
            self.pods[resource.pod_name] = PodObservation("Succeeded", 0, started_at=self.now, finished_at=self.now)
        for name in decision.terminate:
            message = "main: Error (exit code 143)"
            self.pods[name] = PodObservation("Failed", 143, message, finished_at=self.now)

    def go(self, seconds: float = 0.0) -> Machine:
        """Passes until nothing is left to do but wait; then `seconds` later the same."""
        for _ in range(50):
            decision = self.decide()
            self.write(decision)
            self.launch(decision)
            due = decision.wake is not None and decision.wake <= self.now
            if not (decision.start or decision.resources or decision.terminate or due):
                break
        else:
            raise AssertionError("the controller never comes to rest")
        if seconds:
            self.now += seconds
            self.go()
        return self

    def end(self, node: str, code: int | None = 0, *, phase: str = "", message: str = "", **outputs: str) -> Machine:
        """Ends the pod of the running node that is displayed as `node`, or begins so, and goes on."""
        found = [n for n in self.nodes("Pod") if n["displayName"].startswith(node) and n["phase"] == "Running"]
        found = [n for n in found if n["displayName"] == node] or found
        assert len(found) == 1, (node, [n["displayName"] for n in found])
        return self.end_named(found[0]["name"], code, phase=phase, message=message, **outputs)

    def end_named(
        self, name: str, code: int | None = 0, *, phase: str = "", message: str = "", **outputs: str
    ) -> Machine:
        """As `end`, of the node with this whole name."""
        (node,) = [n for n in self.nodes("Pod") if n["name"] == name]
        result = outputs.pop("result", None)
        phase = phase or ("Succeeded" if code == 0 else "Failed")
        if not message and phase == "Failed" and code is not None:
            message = f"main: Error (exit code {code})"
        self.pods[self.pod(node)] = PodObservation(
            phase, code, message, dict(outputs), result=result, finished_at=self.now
        )
        return self.go()

    def tell(self, node: str, phase: str, **known: Any) -> Machine:
        """What is known of the pod of the node displayed as `node` now: fields of a PodObservation."""
        (found,) = [n for n in self.nodes("Pod") if n["displayName"] == node]
        self.pods[self.pod(found)] = PodObservation(phase, finished_at=self.now, **known)
        return self.go()

    def pod(self, node: dict[str, Any]) -> str:
        hashed = "-" + node["id"].rpartition("-")[2]
        return next(name for name in self.pods if name.endswith(hashed) or name == node["name"])

    def nodes(self, kind: str = "") -> list[dict[str, Any]]:
        nodes = (self.workflow.get("status") or {}).get("nodes") or {}
        return [node for node in nodes.values() if not kind or node["type"] == kind]

    def node(self, name: str) -> dict[str, Any]:
        """The node called `name`, without the Workflow's name before it."""
        full = self.workflow["metadata"]["name"] + name
        return next(node for node in self.nodes() if node["name"] == full)

    def phases(self, *kinds: str) -> dict[str, str]:
        return {n["displayName"]: n["phase"] for n in self.nodes() if not kinds or n["type"] in kinds}

    def running(self) -> list[str]:
        return sorted(n["displayName"] for n in self.nodes("Pod") if n["phase"] in ("Pending", "Running"))

    def request(self, part: str) -> dict[str, Any]:
        """The template of the last pod asked for whose name has `part`."""
        return next(r.template for r in reversed(self.requests) if part in r.pod_name)

    @property
    def phase(self) -> str:
        return str(self.workflow["status"]["phase"])

    def set(self, **spec: Any) -> Machine:
        """Patches the spec, as `suspend` and `shutdown` are."""
        self.workflow = {**self.workflow, "spec": {**self.workflow["spec"], **spec}}
        return self


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def machine() -> type[Machine]:
    return Machine
