"""Every field of a Workflow is in one of three lists: executed, accepted without effect here, or refused by name.

The lists of what is executed and what has no effect are below, one table an object; whatever is in neither is refused,
so a field that a later Argo adds is refused too. Without effect are only those whose absence a Workflow can't notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .patches import PatchError, parse_patch

REFUSED = "not executed by the embedded engine"

_PLACING = "there is one machine, nothing to be placed"
_PODS = "there are no Kubernetes pods to be labelled, kept or protected"
_IMAGES = "nothing is pulled: steps run in this Python, learners in the user's environment"
_USERS = "pods are processes of the user who runs the engine"
_NETWORK = "pods use this machine's network"
_TIDYING = "what a job leaves behind goes when the job is deleted"
_ARGO = "it concerns Argo's own programs"
_TERMINAL = "its output goes to its log"


Look = Callable[[Any, str], Iterator[tuple[str, str, bool]]]  # value, path -> (path, why, refused?)


class Table:
    """The fields of one object: `executed` ones (True, or how to look into them) and those `without_effect` (why)."""

    def __init__(
        self, executed: Mapping[str, Look | Table | bool], without_effect: Mapping[str, str] | None = None
    ) -> None:
        self.executed, self.without_effect = executed, without_effect or {}


def unsupported(workflow: Mapping[str, Any]) -> list[str]:
    """What this engine would not do as Argo does: `PATH: not executed by the embedded engine`. Empty: nothing."""
    return [f"{path}: {why}" for path, why, refused in _walk(workflow, "", WORKFLOW) if refused]


def without_effect(workflow: Mapping[str, Any]) -> list[str]:
    """The fields that are set but mean nothing here: `PATH: why`."""
    return [f"{path}: {why}" for path, why, refused in _walk(workflow, "", WORKFLOW) if not refused]


def _walk(value: Any, path: str, table: Look | Table | bool) -> Iterator[tuple[str, str, bool]]:
    if isinstance(table, bool) or value is None:
        return
    if not isinstance(table, Table):
        yield from table(value, path)
        return
    if not isinstance(value, Mapping):
        yield path, "should be a mapping", True
        return
    for key, inner in value.items():
        where = f"{path}.{key}" if path else str(key)
        if key in table.executed:
            yield from _walk(inner, where, table.executed[key])
        elif inner not in (None, False, []):  # but `suspend: {}` says something
            yield where, table.without_effect.get(key, REFUSED), key not in table.without_effect


def _each(table: Look | Table) -> Look:
    def look(value: Any, path: str) -> Iterator[tuple[str, str, bool]]:
        if not isinstance(value, list):
            yield path, "should be a list", True
            return
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}[{index}]", table)

    return look


def _one_of(*known: str) -> Look:
    def look(value: Any, path: str) -> Iterator[tuple[str, str, bool]]:
        if value not in known:
            yield f"{path}: {value}", REFUSED, True

    return look


def _patch(value: Any, path: str) -> Iterator[tuple[str, str, bool]]:
    try:
        patch = parse_patch(value)
    except PatchError:
        if "{{" not in value:  # else it may be one once its references are resolved
            yield path, "is neither JSON nor YAML", True
        return
    yield from _walk(patch, path, POD_SPEC_PATCH)


_PLACEMENT = dict.fromkeys(("affinity", "nodeSelector", "tolerations", "schedulerName"), _PLACING)

POD_SPEC_PATCH = Table(
    dict.fromkeys(("hostname", "subdomain", "terminationGracePeriodSeconds"), True),
    _PLACEMENT
    | dict.fromkeys(("topologySpreadConstraints", "priorityClassName", "schedulingGates"), _PLACING)
    | dict.fromkeys(("setHostnameAsFQDN", "enableServiceLinks", "dnsPolicy", "dnsConfig"), _NETWORK)
    | {"securityContext": _USERS, "imagePullSecrets": _IMAGES},
)

_REFERENCE = Table({"name": True, "optional": True})
_KEY = Table({"name": True, "key": True, "optional": True})
ENV = Table(
    {
        "name": True,
        "value": True,
        "valueFrom": Table(
            {
                "secretKeyRef": _KEY,
                "fieldRef": Table(
                    {"fieldPath": _one_of("metadata.name", "metadata.namespace", "status.podIP"), "apiVersion": True}
                ),
            }
        ),
    }
)
_CONTAINER: dict[str, Look | Table | bool] = {
    "name": True, "image": True, "command": True, "args": True, "workingDir": True,
    "env": _each(ENV), "envFrom": _each(Table({"secretRef": _REFERENCE})),
    "resources": Table({"requests": True, "limits": True}),
    "volumeMounts": _each(Table({"name": True, "mountPath": True, "subPath": True, "readOnly": True})),
}  # fmt: skip
_CONTAINER_WITHOUT_EFFECT = {
    "imagePullPolicy": _IMAGES, "securityContext": _USERS, "ports": _NETWORK, "tty": _TERMINAL,
    "terminationMessagePath": _PODS, "terminationMessagePolicy": _PODS,
}  # fmt: skip
CONTAINER = Table(_CONTAINER, _CONTAINER_WITHOUT_EFFECT)
INIT_CONTAINER = Table({**_CONTAINER, "mirrorVolumeMounts": True}, _CONTAINER_WITHOUT_EFFECT)

VOLUME = Table(
    {
        "name": True,
        "configMap": Table({"name": True, "optional": True}, {"defaultMode": _USERS}),
        "secret": Table({"secretName": True, "optional": True}, {"defaultMode": _USERS}),
        "emptyDir": Table(
            {}, {"medium": "a pod's own folder is on disk", "sizeLimit": "a pod's own folder has no limit"}
        ),
        "hostPath": Table({"path": True, "type": True}),
        "persistentVolumeClaim": Table({"claimName": True, "readOnly": True}),
    }
)
CLAIM = Table(
    {"metadata": Table({"name": True}, {"labels": _PODS, "annotations": _PODS})},
    {"apiVersion": _TIDYING, "kind": _TIDYING, "spec": "a claim is a folder of the job", "status": _TIDYING},
)

RETRY = Table(
    {
        "limit": True,
        "retryPolicy": _one_of("Always", "OnFailure", "OnError"),
        "expression": True,
        "backoff": Table(dict.fromkeys(("duration", "factor", "maxDuration", "cap"), True)),
    },
    {"affinity": _PLACING},
)
_PARAMETER = {"name": True, "value": True, "default": True, "description": True}
ARGUMENTS = Table({"parameters": _each(Table({"name": True, "value": True}))})
INPUTS = Table({"parameters": _each(Table(_PARAMETER))})
OUTPUTS = Table(
    {
        "parameters": _each(
            Table(
                {**_PARAMETER, "valueFrom": Table(dict.fromkeys(("path", "default", "parameter", "expression"), True))}
            )
        )
    }
)
_TASK: dict[str, Look | Table | bool] = {
    "name": True, "template": True, "arguments": ARGUMENTS, "when": True, "withItems": True, "withParam": True,
    "withSequence": Table(dict.fromkeys(("count", "start", "end", "format"), True)),
    "continueOn": Table({"failed": True, "error": True}),
}  # fmt: skip
STEP = Table(_TASK)
DAG_TASK = Table({**_TASK, "depends": True, "dependencies": True})
TEMPLATE = Table(
    {
        "name": True,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "container": CONTAINER,
        "initContainers": _each(INIT_CONTAINER),
        "dag": Table({"tasks": _each(DAG_TASK), "failFast": True, "target": True}),
        "steps": _each(_each(STEP)),
        "resource": Table({"action": _one_of("apply", "create"), "manifest": True, "setOwnerReference": True}),
        "retryStrategy": RETRY,
        "volumes": _each(VOLUME),
        "podSpecPatch": _patch,
        "serviceAccountName": True,
        "automountServiceAccountToken": True,
        "metadata": Table({}, {"labels": _PODS, "annotations": _PODS}),
    },
    _PLACEMENT
    | {
        "priorityClassName": _PLACING,
        "securityContext": _USERS,
        "executor": _ARGO,
        "metrics": _ARGO,
        "annotations": _ARGO,
    },
)
SPEC = Table(
    {
        "entrypoint": True,
        "onExit": True,
        "arguments": ARGUMENTS,
        "templates": _each(TEMPLATE),
        "retryStrategy": RETRY,
        "volumes": _each(VOLUME),
        "volumeClaimTemplates": _each(CLAIM),
        "podSpecPatch": _patch,
        "serviceAccountName": True,
        "automountServiceAccountToken": True,
        "suspend": True,
        "shutdown": _one_of("", "Stop", "Terminate"),
        "parallelism": True,
        "activeDeadlineSeconds": True,
        "priority": True,
    },
    _PLACEMENT
    | dict.fromkeys(("hostNetwork", "dnsPolicy", "dnsConfig"), _NETWORK)
    | dict.fromkeys(("podGC", "ttlStrategy", "volumeClaimGC"), _TIDYING)
    | dict.fromkeys(("podMetadata", "podDisruptionBudget"), _PODS)
    | dict.fromkeys(("executor", "metrics", "archiveLogs"), _ARGO)
    | {"podPriorityClassName": _PLACING, "securityContext": _USERS, "imagePullSecrets": _IMAGES},
)
WORKFLOW = Table(
    {
        "apiVersion": _one_of("argoproj.io/v1alpha1"),
        "kind": _one_of("Workflow"),
        "metadata": True,
        "spec": SPEC,
        "status": True,
    }
)
