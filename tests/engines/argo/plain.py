"""Jobs for tests of the engine alone: their steps are shell in Debian's image, and there is no helper."""

from __future__ import annotations

import json
from typing import Any

from ffdl.engines.argo.engine import ArgoEngine
from ffdl.engines.client import new_job_id
from ffdl.learner import contract
from ffdl.workflows.compile import Compiled
from tests.behaviours.tenant import Tenant

IMAGE = "localhost/debian:bookworm"
AGAIN = "lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [-1, 75, 137, 143]"
PATIENCE = 120.0


def engine(team: Tenant) -> ArgoEngine:
    """With the rights of a user of the team."""
    return ArgoEngine(team.namespace, kubeconfig=str(team.kubeconfig))


def spec(results: bool = True) -> contract.JobSpec:
    store = contract.Store("claim", contract.DEFAULT_RESULTS_BUCKET) if results else None
    return contract.JobSpec("plain", "true", "custom", IMAGE, 1, 0.1, 0, 1 << 26, store)


def compiled(command: str, learners: int = 1, code: bytes = b"zip", results: bool = True, **spec_keys: Any) -> Compiled:
    """`command` runs in each learner; {{inputs.parameters.index}} is its index."""

    def template(name: str, script: str, **more: Any) -> dict[str, Any]:
        labels = {contract.LABEL_JOB: "{{workflow.name}}", contract.LABEL_ROLE: name}
        retry = {
            "retryPolicy": "Always",
            "limit": "100",
            "expression": AGAIN,
            "backoff": {"duration": "1s", "factor": 1},
        }
        container = {"image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["bash", "-c", script]}
        return {"name": name, "metadata": {"labels": labels}, "container": container, "retryStrategy": retry, **more}

    index = {"parameters": [{"name": "index", "value": "{{item}}"}]}
    each: dict[str, Any] = {"name": "learner", "template": "learner", "depends": "download", "arguments": index}
    each["withParam"] = json.dumps(list(range(learners)))
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    grace = json.dumps({"terminationGracePeriodSeconds": 3})
    workflow = {
        "metadata": {
            "annotations": {
                contract.ANNOTATION_NAME: '"plain"',
                contract.ANNOTATION_SUMMARY: json.dumps({"framework": "custom", "learners": learners}),
            }
        },
        "spec": {
            "entrypoint": "training",
            "serviceAccountName": "ffdl-executor",
            "executor": {"serviceAccountName": "ffdl-executor"},
            "automountServiceAccountToken": False,
            "volumeClaimTemplates": [{"metadata": {"name": "job"}, "spec": claim}],
            "templates": [
                {"name": "training", "dag": {"failFast": False, "tasks": [_task("download"), each]}},
                template("download", "echo downloading"),
                template("learner", command, inputs={"parameters": [{"name": "index"}]}, podSpecPatch=grace),
            ],
            **spec_keys,
        },
    }
    config = {contract.JOB_FILE: spec(results).to_json().encode(), contract.CODE_FILE: code}
    return Compiled(workflow, config, {"": {contract.SECRET_ENV_FILE: b"{}"}, "-store": {"credentials.json": b"{}"}})


def _task(name: str) -> dict[str, Any]:
    return {"name": name, "template": name}


def submitted(found: ArgoEngine, job: Compiled) -> str:
    job_id = new_job_id()
    found.submit(job, job_id)
    return job_id


def until(found: ArgoEngine, job_id: str, *states: str) -> None:
    """Raises AssertionError if the job does not come to one of these states."""
    last = None
    for last in found.watch(job_id, PATIENCE):
        if last.state in states:
            return
    raise AssertionError(f"{job_id} never was {states}: {last}")
