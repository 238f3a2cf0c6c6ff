"""A kubelet that is none: pods of the real controller whose commands run here, as plain processes.

A pod that names the scheduler SCHEDULER is bound to no node. This runs the command of its main container and writes to
the API what a kubelet and Argo's executor would: the pod's status and a WorkflowTaskResult. What is compared is then
Argo's controller alone, at twenty pods a second instead of one.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tests.behaviours.kubernetes_api import Api, ApiError

from .case import Case

SCHEDULER = "simulated"
_OUT = "/out"  # where the leaves of the grammar write
AT_ONCE = 30  # Workflows
_COMMANDS = 4
_NODE_ID = "workflows.argoproj.io/node-id"
_WORKFLOW = "workflows.argoproj.io/workflow"
_REPORTED = "workflows.argoproj.io/report-outputs-completed"


def simulated(case: Case) -> Case:
    """`case`, its pods left to the simulated kubelet."""
    workflow = {**case.workflow, "spec": {**case.workflow["spec"], "schedulerName": SCHEDULER}}
    return replace(case, group="simulated", workflow=workflow)


class Kubelet:
    """Ends the pods of a namespace from `start` on, for as long as this process lives."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.seen: set[str] = set()
        self.pool = ThreadPoolExecutor(_COMMANDS)

    def start(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                for event in self.api.stream(self.api.path("pods"), watch="1", timeoutSeconds="300"):
                    pod = event["object"]
                    if event["type"] == "ADDED" and pod["spec"].get("schedulerName") == SCHEDULER:
                        self._take(pod)
            except (ApiError, OSError, ValueError):
                time.sleep(0.2)

    def _take(self, pod: dict[str, Any]) -> None:
        if pod["metadata"]["uid"] not in self.seen and pod["status"]["phase"] == "Pending":
            self.seen.add(pod["metadata"]["uid"])
            self.pool.submit(self._run, pod)

    def _run(self, pod: dict[str, Any]) -> None:
        try:
            code, outputs = execute(_template(pod), _wants_result(pod))
            self._report(pod, outputs)
            self._status(pod, code)
        except ApiError as error:
            if error.status != 404:  # else it was deleted meanwhile
                print(f"simulated kubelet: {pod['metadata']['name']}: {error}", flush=True)

    def _report(self, pod: dict[str, Any], outputs: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        labels = {_WORKFLOW: metadata["labels"][_WORKFLOW], _REPORTED: "true"}
        result = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "WorkflowTaskResult",
            "metadata": {
                "name": metadata["annotations"][_NODE_ID],
                "labels": labels,
                "ownerReferences": metadata["ownerReferences"],
            },
        }
        self.api.create("workflowtaskresults", {**result, **({"outputs": outputs} if outputs else {})})

    def _status(self, pod: dict[str, Any], code: int) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        containers = []
        for container in pod["spec"]["containers"]:
            own = code if container["name"] == "main" else 0
            ended = {"exitCode": own, "reason": "Error" if own else "Completed", "startedAt": now, "finishedAt": now}
            state = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
            containers.append({**state, "restartCount": 0, "state": {"terminated": ended}})
        status = {"phase": "Failed" if code else "Succeeded", "startTime": now, "containerStatuses": containers}
        self.api.patch("pods", f"{pod['metadata']['name']}/status", {"status": status})


def execute(template: dict[str, Any], wants_result: bool) -> tuple[int, dict[str, Any]]:
    """Runs the container of `template`, its references resolved: the exit code, and the outputs as Argo has them."""
    container = template.get("container") or template["script"]
    with tempfile.TemporaryDirectory(prefix="ffdl-simulated-") as folder:
        script = ["-c", container["source"]] if "source" in container else []
        argv = [part.replace(_OUT, folder) for part in [*container["command"], *container.get("args", []), *script]]
        env = {"PATH": os.environ["PATH"]} | {v["name"]: v.get("value", "") for v in container.get("env", [])}
        done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True)
        parameters = []
        for output in (template.get("outputs") or {}).get("parameters") or []:
            path = output["valueFrom"]["path"].replace(_OUT, folder)
            value = output["valueFrom"].get("default")
            if os.path.exists(path):
                with open(path) as stream:
                    value = stream.read().removesuffix("\n")
            parameters.append({**output, **({} if value is None else {"value": value})})
    outputs: dict[str, Any] = {"parameters": parameters} if parameters else {}
    return done.returncode, outputs | ({"result": done.stdout.removesuffix("\n")} if wants_result else {})


def _wants_result(pod: dict[str, Any]) -> bool:
    variables = [variable for container in pod["spec"]["containers"] for variable in container["env"]]
    return {"name": "ARGO_INCLUDE_SCRIPT_OUTPUT", "value": "true"} in variables


def _template(pod: dict[str, Any]) -> dict[str, Any]:
    variables = pod["spec"]["initContainers"][0]["env"]
    found: dict[str, Any] = next(json.loads(v["value"]) for v in variables if v["name"] == "ARGO_TEMPLATE")
    return found
