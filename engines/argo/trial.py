"""A trial on the cluster: one small Workflow with pods like those of a job, that shows what no look at objects can.

That the controller reacts, images can be pulled and start, a volume for several pods can be had, names resolve, and
Argo's executor may report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from ...learner import contract, waiting
from ...workflows.compile import AGENT_IMAGE, EXECUTOR_ACCOUNT, STEPS_IMAGE
from ...workflows.site import OUR_USER, Site
from ..finding import NOTE, OK, PROBLEM, Finding
from ..nodes import ENDED, raw_nodes
from .access import CLAIMS, EVENTS, PODS, WORKFLOWS, Api, Object

LEARNER_IMAGE = "ffdl-learner-numpy"
REACTION = 20.0  # seconds that the controller has for a sign of life
PATIENCE = 10.0  # seconds for which a reason that waiting can't cure must last to be believed
INTERVAL = 0.5
NO_NAMES, NO_WRITING, NO_NUMPY = 11, 12, 13
TOPIC = "trial"
_STEP = f"""
import socket, sys
try:
    open("/job/trial", "w").close()
except OSError:
    sys.exit({NO_WRITING})
try:
    socket.getaddrinfo("kubernetes.default.svc", 443)
except OSError:
    sys.exit({NO_NAMES})
import ffdl.steps.checkpoint
"""
_LEARNER = f"""
import subprocess, sys, ffdl.steps.agent
sys.exit(subprocess.run(["python3", "-c", "import numpy"]).returncode and {NO_NUMPY})
"""
_SAID = {
    NO_NAMES: "names of the cluster don't resolve in pods (kubernetes.default.svc): look at its DNS, and at whether "
    "NetworkPolicies let port 53 through",
    NO_WRITING: "the volume of a job can't be written by group 65532: its storage class must honour fsGroup, or give "
    "folders that anyone may write",
    NO_NUMPY: f"the image {LEARNER_IMAGE} has no NumPy",
}


def workflow(name: str, site: Site) -> Object:
    """The Workflow of a trial."""
    ours: dict[str, Any] = _container_security()
    resources = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    volume = {"name": "job", "mountPath": contract.JOB_DIR}
    agent = {"name": "agent", "mountPath": contract.AGENT_DIR}
    common: dict[str, Any] = {"imagePullPolicy": "Always" if _pulled(site) else site.pull_policy}
    step = {
        "name": "step",
        "securityContext": {**_pod_security(), "runAsNonRoot": True, "runAsUser": OUR_USER, "runAsGroup": OUR_USER},
        "container": {
            **common, "image": site.image(STEPS_IMAGE), "command": ["python3", "-c", _STEP], "resources": resources,
            "securityContext": {**ours, "readOnlyRootFilesystem": True}, "volumeMounts": [volume],
        },
    }  # fmt: skip
    learner = {
        "name": "learner",
        "initContainers": [
            {
                **common, "name": "agent", "image": site.image(AGENT_IMAGE),
                "command": ["python3", "-m", "ffdl.steps.install_agent", contract.AGENT_DIR],
                "securityContext": {**ours, "readOnlyRootFilesystem": True}, "volumeMounts": [agent],
            }
        ],
        "container": {
            **common, "image": site.image(LEARNER_IMAGE), "command": [contract.AGENT_PYTHON, "-c", _LEARNER],
            "resources": resources, "volumeMounts": [volume, agent],
            **({"securityContext": ours} if site.learners_non_root else {}),
        },
    }  # fmt: skip
    tasks = [{"name": template["name"], "template": template["name"]} for template in (step, learner)]
    claim = {
        "metadata": {"name": "job"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "16Mi"}}},
    }
    spec = {
        "entrypoint": "trial",
        "serviceAccountName": EXECUTOR_ACCOUNT,
        "executor": {"serviceAccountName": EXECUTOR_ACCOUNT},
        "automountServiceAccountToken": False,
        "securityContext": _pod_security(),
        "ttlStrategy": {"secondsAfterCompletion": 600},
        "activeDeadlineSeconds": 1800,
        "volumeClaimTemplates": [claim],
        "volumeClaimGC": {"strategy": "OnWorkflowCompletion"},
        "volumes": [{"name": "agent", "emptyDir": {}}],
        "templates": [{"name": "trial", "dag": {"tasks": tasks, "failFast": False}}, step, learner],
    }
    return {"metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "ffdl"}}, "spec": spec}


def _pod_security() -> dict[str, Any]:
    return {
        "fsGroup": OUR_USER, "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"}
    }  # fmt: skip


def _container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "runAsUser": OUR_USER, "runAsGroup": OUR_USER,
    }  # fmt: skip


def check(api: Api, site: Site, timeout: float) -> Iterator[Finding]:
    """Takes up to `timeout` seconds; leaves nothing behind. Raises EngineError."""
    name = f"ffdl-doctor-{os.urandom(4).hex()}"
    api.create(WORKFLOWS, workflow(name, site))
    began = time.monotonic()
    try:
        yield from _watch(api, site, name, began, timeout)
    finally:
        api.delete(WORKFLOWS, name)


def _watch(api: Api, site: Site, name: str, began: float, timeout: float) -> Iterator[Finding]:
    stuck: dict[str, float] = {}  # node id -> since when
    told: set[str] = set()
    reacted = False
    while True:
        waited = time.monotonic() - began
        found = api.get(WORKFLOWS, name)
        status = found.get("status") or {}
        nodes = {key: node for key, node in raw_nodes(status).items() if node.get("type") == "Pod"}
        if status.get("phase") and not reacted:
            reacted = True
            yield Finding(TOPIC, OK, f"the controller took up a Workflow within {waited:.1f} s")
        elif not reacted and waited > REACTION:
            words = f"no controller took up a Workflow within {REACTION:g} s: it does not run, or does not look after"
            yield Finding(TOPIC, PROBLEM, f"{words} namespace {api.namespace}")
            return
        for key, node in nodes.items():
            if key not in told and (outcome := _outcome(api, site, name, node, stuck, waited > timeout)):
                told.add(key)
                yield outcome
        if status.get("phase") in ENDED or (len(told) == 2):
            if not told:
                yield Finding(TOPIC, PROBLEM, f"the trial did not start: {status.get('message') or 'no reason given'}")
            elif all(node.get("phase") == "Succeeded" for node in nodes.values()):
                yield Finding(TOPIC, OK, "a volume for several pods was made and written, and names resolve in pods")
            return
        if waited > timeout + INTERVAL:
            if not nodes:
                yield Finding(TOPIC, PROBLEM, f"no pod was made within {timeout:g} s: {_claim(api, name)}")
            return
        time.sleep(INTERVAL)


def _outcome(api: Api, site: Site, name: str, node: Object, stuck: dict[str, float], last: bool) -> Finding | None:
    """What is to be said of a pod; None as long as nothing is."""
    key, template = node["id"], node["templateName"]
    images = (STEPS_IMAGE,) if template == "step" else (AGENT_IMAGE, LEARNER_IMAGE)
    shown = " and ".join(site.image(image) for image in images)
    if node.get("phase") == "Succeeded":
        works = "can be pulled and started" if _pulled(site) else "starts" if len(images) == 1 else "start"
        return Finding(TOPIC, OK, f"{shown} {works}")
    if node.get("phase") in ENDED:
        code = (node.get("outputs") or {}).get("exitCode")
        said = _SAID.get(int(code)) if code not in (None, "") else None
        return Finding(TOPIC, PROBLEM, said or f"the {template}'s pod failed: {_one_line(node)}")
    message = _message(api, contract.pod_name(name, node)) or _one_line(node)
    verdict = waiting.judge(message)
    if verdict != waiting.STUCK:
        stuck.pop(key, None)
    since = stuck.setdefault(key, time.monotonic()) if verdict == waiting.STUCK else None
    if since is not None and (last or time.monotonic() - since > PATIENCE):
        build = _build(api.namespace, site) if "mage" in message.partition(":")[0] else ""
        return Finding(TOPIC, PROBLEM, f"the {template}'s pod can't start: {message}", build)
    if last:
        state = NOTE if verdict == waiting.ROOM else PROBLEM
        words = f"the {template}'s pod has not ended in time: {message or 'it still starts or runs'}"
        return Finding(TOPIC, state, words)
    return None


def _pulled(site: Site) -> bool:
    """Whether nodes get the images from a registry; those of `localhost` are put on the nodes by hand."""
    return site.registry != "localhost" and site.pull_policy != "Never"


def _build(namespace: str, site: Site) -> str:
    """How the images get to where the cluster finds them."""
    if site.registry != "localhost":
        return f"ffdl images build --registry {site.registry} --tag {site.tag} --push"
    setting = 'kubectl -n {} patch configmap ffdl-tenant --type=merge -p \'{{"data":{{"registry":"REGISTRY"}}}}\''
    return f"ffdl images build --registry REGISTRY --push\n{setting.format(namespace)}"


def _message(api: Api, pod: str) -> str:
    found = api.find(PODS, pod)
    if found is None:
        return ""
    events = list(api.list(EVENTS, fields=f"involvedObject.uid={found['metadata']['uid']}"))
    return waiting.pod_message(found, events)


def _claim(api: Api, name: str) -> str:
    """Why the trial's volume is not there."""
    found = api.find(CLAIMS, f"{name}-job")
    if found is None:
        return "its volume was not asked for either; look at the controller's log"
    events = list(api.list(EVENTS, fields=f"involvedObject.uid={found['metadata']['uid']}"))
    said = "; ".join(dict.fromkeys(str(event.get("message", "")) for event in events))
    return f"its volume (claim {name}-job) is {found.get('status', {}).get('phase', 'unknown')}: {said or 'no reason'}"


def _one_line(node: Object) -> str:
    return " ".join(str(node.get("message") or "").split())
