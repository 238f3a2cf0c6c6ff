"""Pods and nodes: asking for a node's pod, and telling the node what became of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..pod import PodObservation
from . import artifacts, containers
from .calls import TemplateError
from .decision import PodRequest, Resource
from .jsontext import text
from .names import seconds, task_name, timestamp
from .nodes import Node
from .patches import parse_patch
from .phases import COMPLETED, ERROR, FAILED, FULFILLED, PENDING, RUNNING, SUCCEEDED
from .progress import valid

if TYPE_CHECKING:
    from .operation import Operation

_FROM_WORKFLOW = ("serviceAccountName", "automountServiceAccountToken")
_WORKFLOW_PATCH = "workflowPodSpecPatch"


def request_template(spec: Mapping[str, Any], workflow: str, template: Mapping[str, Any]) -> dict[str, Any]:
    """`template` with what the Workflow adds to its pods, not yet substituted."""
    merged = {key: spec[key] for key in _FROM_WORKFLOW if key in spec} | dict(template)
    claims = [
        {
            "name": claim["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{workflow}-{claim['metadata']['name']}"},
        }
        for claim in spec.get("volumeClaimTemplates") or []
    ]
    volumes = {v["name"]: v for v in [*(spec.get("volumes") or []), *claims, *(template.get("volumes") or [])]}
    several = containers.everything(template)
    mounted = {mount["name"] for container in several for mount in container.get("volumeMounts") or []}
    merged["volumes"] = [volume for name, volume in volumes.items() if name in mounted]
    if spec.get("podSpecPatch"):
        merged[_WORKFLOW_PATCH] = spec["podSpecPatch"]
    return merged


def build(
    workflow: str, node: Node, pod: str, template: Mapping[str, Any], wants_result: bool
) -> PodRequest | Resource:
    """The request for the pod of `node`. Raises patches.PatchError, TemplateError."""
    if "resource" in template:
        return Resource(node["id"], pod, template["resource"]["manifest"], template["resource"]["action"])
    patches = [template[key] for key in (_WORKFLOW_PATCH, "podSpecPatch") if template.get(key)]
    merged: dict[str, Any] = {}
    for patch in patches:
        merged |= parse_patch(patch)
    request = {key: value for key, value in template.items() if key != _WORKFLOW_PATCH}
    if merged:
        request["podSpecPatch"] = merged
    main = dict(containers.mains(template)).get(containers.MAIN, {})
    for kind in ("initContainers", "sidecars"):
        if template.get(kind):
            request[kind] = [_mirrored(container, main) for container in template[kind]]
    if kept := artifacts.stored(template, workflow, pod):
        request["outputs"] = {**template["outputs"], "artifacts": kept}
    return PodRequest(node["id"], pod, request, wants_result)


def result_is_wanted(op: Operation, node: Node) -> bool:
    """Whether the DAG or steps around `node` refer to its `outputs.result`, in one of the ways that Argo looks for."""
    holder = op.nodes.get(node.get("boundaryID", ""))
    if holder is None:
        return False
    wanted = op.remember(holder, "results", lambda: _results(op.templates.of(op.nodes, holder)))
    return task_name(node["name"]) in wanted


def observe(op: Operation) -> None:
    """Brings the observed pods' news into their nodes. An ended node stays as it is."""
    told = op.memory.told
    for name, node in op.nodes.live_pods():
        pod = op.observed.get(name)
        if pod is not None and told.get(name) != pod:
            _update(op, node, pod)
            told[name] = pod
        if pod is not None and pod.ended:
            told.pop(name, None)


def end_containers(op: Operation) -> None:
    """Ends the containers whose pod has come to an end without a word of theirs: a shutdown, a deadline."""
    for node in op.nodes.live():
        pod = op.nodes.get(node.get("boundaryID", "")) if node["type"] == "Container" else None
        if pod is not None and pod["phase"] in FULFILLED:
            op.nodes.mark(node, FAILED, pod.get("message", ""))


def superfluous(op: Operation) -> list[str]:
    """The pods that live although their node has ended, or that belong to none."""
    over = op.status["phase"] in COMPLETED  # then nothing is to be left
    wanted = set() if over else {name for name, _ in op.nodes.live_pods()}
    return sorted(name for name, pod in op.observed.items() if not pod.ended and name not in wanted)


def request_unseen(op: Operation) -> None:
    """Asks again for pods that were asked for but never seen: whoever was to start them may have died before."""
    for name, node in op.nodes.live_pods():
        if name not in op.observed and node["id"] not in op.pods and node["id"] not in op.resources:
            try:
                op.request(node)
            except TemplateError:
                op.wake_at(op.now)


def _results(template: Mapping[str, Any]) -> set[str]:
    """The tasks or steps whose `outputs.result` a DAG or steps template refers to."""
    kind = "tasks" if "dag" in template else "steps"
    found = re.findall(rf"{kind}(?:\.([\w-]+)|\[['\"]([\w-]+)['\"]\])\.outputs.result", json.dumps(template))
    return {plain or quoted for plain, quoted in found}


def _mirrored(container: Mapping[str, Any], main: Mapping[str, Any]) -> Mapping[str, Any]:
    if not container.get("mirrorVolumeMounts"):
        return container
    own = list(container.get("volumeMounts") or [])
    taken = {mount["mountPath"] for mount in own}
    mirrored = [mount for mount in main.get("volumeMounts") or [] if mount["mountPath"] not in taken]
    return {**container, "volumeMounts": [*own, *mirrored]}


def _update(op: Operation, node: Node, pod: PodObservation) -> None:
    template = op.templates.of(op.nodes, node)
    daemon = bool(template.get("daemon"))
    if daemon and pod.phase == RUNNING and not pod.ready:
        return
    phase, message = pod.phase, pod.message
    outputs = _outputs(op, node, template, pod) if pod.ended else None
    containers.update(op.nodes, node, template, pod)
    if phase == SUCCEEDED:
        missing = [p["name"] for p in (outputs or {}).get("parameters") or [] if "value" not in p]
        message = ""
        if missing:
            phase, message = ERROR, f"wait: output parameter '{missing[0]}' was not written"
        elif daemon:  # it was to run until it is ended
            phase = FAILED
    elif phase == FAILED:
        message = message or (f"main: Error (exit code {pod.exit_code})" if _told(pod) else "")
    elif phase == ERROR:
        message = message or "pod deleted"
    elif phase not in (PENDING, RUNNING):
        phase, message = ERROR, f"Unexpected pod phase for {op.pod_name(node)}: {phase}"
    elif phase == RUNNING:
        message = ""
    progress = pod.progress if valid(pod.progress) else node.get("progress")
    if progress != node.get("progress"):
        op.nodes.edit(node)["progress"] = progress
    if outputs:
        op.nodes.edit(node)["outputs"] = outputs
        op.publish(outputs)
    if phase in FULFILLED:
        # the clock may have been set back since the start
        ended = max(pod.finished_at if pod.finished_at is not None else op.now, seconds(node["startedAt"]))
        op.nodes.edit(node)["finishedAt"] = timestamp(ended)
    up = daemon and phase == RUNNING
    if up and pod.ip and node.get("podIP") != pod.ip:
        op.nodes.edit(node)["podIP"] = pod.ip
    op.nodes.mark(node, phase, message, daemoned=up)


def _told(pod: PodObservation) -> bool:
    """Whether the main container's own exit code is known."""
    return pod.exit_code is not None and pod.exit_code >= 0


def _outputs(op: Operation, node: Node, template: Mapping[str, Any], pod: PodObservation) -> dict[str, Any]:
    """What an ended pod has left; of one that was deleted, or whose main container never ran, nothing."""
    outputs: dict[str, Any] = {}
    if not _told(pod):
        return outputs
    outputs["exitCode"] = str(pod.exit_code)
    if template.get("outputs"):
        template = op.process(template, node)
    if pod.result is not None:
        outputs["result"] = pod.result
    declared = (template.get("outputs") or {}).get("parameters") or []
    parameters = []
    for output in declared:
        value = pod.outputs.get(output["name"])
        default = (output.get("valueFrom") or {}).get("default")
        if value is None and default is not None:
            value = text(default)
        parameters.append(output if value is None else {**output, "value": value})
    if parameters:
        outputs["parameters"] = parameters
    kept = [a for a in artifacts.stored(template, op.name, op.pod_name(node)) if a["name"] in pod.artifacts]
    if kept:
        outputs["artifacts"] = kept
    return outputs
