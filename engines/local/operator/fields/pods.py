"""The tables of what is in a pod: containers, environment, volumes, and what podSpecPatch may change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..paths import Path
from .reasons import IMAGES, NETWORK, PLACING, PODS, TERMINAL, TIDYING, USERS
from .table import (
    FLAG,
    TEXT,
    TEXTS,
    VALUE,
    WHOLE,
    WHOLE_OR_TEXT,
    Each,
    Finding,
    Kind,
    Named,
    OneOf,
    Table,
    because,
    texts,
)

PLACEMENT = because(PLACING, "affinity", "nodeSelector", "tolerations", "schedulerName")

POD_SPEC_PATCH = Table(
    "podSpecPatch",
    {**texts("hostname", "subdomain"), "terminationGracePeriodSeconds": VALUE},
    PLACEMENT
    | because(PLACING, "topologySpreadConstraints", "priorityClassName", "schedulingGates")
    | because(NETWORK, "setHostnameAsFQDN", "enableServiceLinks", "dnsPolicy", "dnsConfig")
    | {"securityContext": USERS, "imagePullSecrets": IMAGES},
    because("write it into the template", "containers", "initContainers", "volumes"),
)


class FieldPath(OneOf):
    """A field of the pod, or one of its labels or annotations by name."""

    _SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['.+'\]")

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        if not (isinstance(value, str) and self._SUBSCRIPT.fullmatch(value)):
            yield from super().look(value, path)


ENV = Table(
    "Environment variable",
    {
        **texts("name", "value"),
        "valueFrom": Table(
            "Environment variable: valueFrom",
            {
                "configMapKeyRef": Table("configMapKeyRef", {**texts("name", "key"), "optional": FLAG}),
                "secretKeyRef": Table("secretKeyRef", {**texts("name", "key"), "optional": FLAG}),
                "fieldRef": Table(
                    "fieldRef",
                    {
                        "fieldPath": FieldPath(
                            "metadata.name",
                            "metadata.namespace",
                            "metadata.labels['NAME']",
                            "metadata.annotations['NAME']",
                            "spec.nodeName",
                            "spec.serviceAccountName",
                            "status.hostIP",
                            "status.podIP",
                        ),
                        "apiVersion": TEXT,
                    },
                ),
                "resourceFieldRef": Table(
                    "resourceFieldRef",
                    {"resource": TEXT, "divisor": VALUE},
                    refused={"containerName": "it is the container's own"},
                ),
            },
        ),
    },
)
ENV_FROM = Table(
    "envFrom",
    {
        "configMapRef": Table("configMapRef", {"name": TEXT, "optional": FLAG}),
        "secretRef": Table("secretRef", {"name": TEXT, "optional": FLAG}),
        "prefix": TEXT,
    },
)
RESOURCES = Table(
    "resources",
    {"requests": Named(VALUE), "limits": Named(VALUE)},
    refused={"claims": "ask for GPUs with limits"},
)
MOUNT = Table(
    "volumeMounts",
    {**texts("name", "mountPath", "subPath", "subPathExpr"), "readOnly": FLAG},
    refused=because("", "mountPropagation", "recursiveReadOnly"),
)

READINESS = Table(
    "readinessProbe",
    {
        "exec": Table("exec", {"command": TEXTS}),
        "httpGet": Table(
            "httpGet",
            {
                **texts("host", "path"),
                "port": WHOLE_OR_TEXT,
                "scheme": OneOf("HTTP", "HTTPS"),
                "httpHeaders": Each(Table("httpHeaders", texts("name", "value"))),
            },
        ),
        "tcpSocket": Table("tcpSocket", {"host": TEXT, "port": WHOLE_OR_TEXT}),
        **dict.fromkeys(("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold"), WHOLE),
    },
    {"failureThreshold": "only the first success counts", "terminationGracePeriodSeconds": PODS},
    {"grpc": "use httpGet, tcpSocket or exec"},
)
_PROBES = ("livenessProbe", "startupProbe")
_CONTAINER: dict[str, Kind] = {
    **texts("name", "image", "workingDir"),
    "command": TEXTS,
    "args": TEXTS,
    "env": Each(ENV),
    "envFrom": Each(ENV_FROM),
    "resources": RESOURCES,
    "volumeMounts": Each(MOUNT),
    "readinessProbe": READINESS,
}
_WITHOUT_EFFECT = {
    "imagePullPolicy": IMAGES, "securityContext": USERS, "ports": NETWORK, "tty": TERMINAL,
    "terminationMessagePath": PODS, "terminationMessagePolicy": PODS, "resizePolicy": PODS,
}  # fmt: skip
_REFUSED = (
    because("let the command check itself, and exit when it is unwell", *_PROBES)
    | because("let the command do it", "lifecycle")
    | because("redirect the command's input", "stdin", "stdinOnce")
    | because("", "restartPolicy", "volumeDevices")
)
CONTAINER = Table("container", _CONTAINER, _WITHOUT_EFFECT, _REFUSED)
INIT_CONTAINER = Table("initContainers", {**_CONTAINER, "mirrorVolumeMounts": FLAG}, _WITHOUT_EFFECT, _REFUSED)
SIDECAR = Table("sidecars", {**_CONTAINER, "mirrorVolumeMounts": FLAG}, _WITHOUT_EFFECT, _REFUSED)
SCRIPT = Table("script", {**_CONTAINER, "source": TEXT}, _WITHOUT_EFFECT, _REFUSED)
CONTAINER_SET = Table(
    "containerSet",
    {
        "containers": Each(
            Table("containerSet: containers", {**_CONTAINER, "dependencies": TEXTS}, _WITHOUT_EFFECT, _REFUSED)
        ),
        "volumeMounts": Each(MOUNT),
        "retryStrategy": Table("containerSet: retryStrategy", {"retries": WHOLE_OR_TEXT, "duration": TEXT}),
    },
)

_MODE = {"defaultMode": USERS}
_ITEMS = {"items": Each(Table("items", texts("key", "path"), {"mode": USERS}))}
VOLUME = Table(
    "volumes",
    {
        "name": TEXT,
        "configMap": Table("configMap", {"name": TEXT, "optional": FLAG, **_ITEMS}, _MODE),
        "secret": Table("secret", {"secretName": TEXT, "optional": FLAG, **_ITEMS}, _MODE),
        "emptyDir": Table(
            "emptyDir",
            {},
            {"medium": "a pod's own folder is on disk", "sizeLimit": "a pod's own folder has no limit"},
        ),
        "hostPath": Table("hostPath", texts("path", "type")),
        "persistentVolumeClaim": Table("persistentVolumeClaim", {"claimName": TEXT, "readOnly": FLAG}),
    },
    refused=because(
        "mount it on this machine and name the folder as hostPath",
        "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
        "gcePersistentDisk", "glusterfs", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd",
        "scaleIO", "storageos", "vsphereVolume",
    )
    | because("write several volumes", "projected")
    | because("use a claim, or emptyDir", "ephemeral")
    | because("use valueFrom.fieldRef in the environment", "downwardAPI")
    | because("", "gitRepo", "image"),
)  # fmt: skip
CLAIM = Table(
    "volumeClaimTemplates",
    {
        "metadata": Table(
            "volumeClaimTemplates: metadata",
            {"name": TEXT},
            because(PODS, "labels", "annotations")
            | because(
                TIDYING,
                "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation",
                "managedFields", "namespace", "ownerReferences", "resourceVersion", "selfLink", "uid",
            ),
            {"generateName": "write name"},
        )
    },
    {"apiVersion": TIDYING, "kind": TIDYING, "spec": "a claim is a folder of the job", "status": TIDYING},
)  # fmt: skip
METADATA = Table("metadata of pods", {}, because(PODS, "labels", "annotations"))
