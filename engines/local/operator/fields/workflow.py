"""The tables of a Workflow and its templates."""

from __future__ import annotations

from .pods import (
    CLAIM,
    CONTAINER,
    CONTAINER_SET,
    INIT_CONTAINER,
    METADATA,
    PLACEMENT,
    POD_SPEC_PATCH,
    SCRIPT,
    SIDECAR,
    VOLUME,
)
from .reasons import ARGO, CLUSTER, IMAGES, NETWORK, PLACING, PODS, TIDYING, USERS
from .table import (
    ANY,
    EXPRESSION,
    FLAG,
    LABELS,
    TEXT,
    TEXTS,
    VALUE,
    WHOLE,
    WHOLE_OR_TEXT,
    AtLeast,
    Each,
    Kind,
    Named,
    OneOf,
    Patch,
    Table,
    because,
    texts,
)

RETRY = Table(
    "retryStrategy",
    {
        "limit": WHOLE_OR_TEXT,
        "retryPolicy": OneOf("Always", "OnFailure", "OnError", "OnTransientError"),
        "expression": EXPRESSION,
        "backoff": Table("backoff", {**texts("duration", "maxDuration", "cap"), "factor": WHOLE_OR_TEXT}),
    },
    {"affinity": PLACING},
)

_STORE = "artifacts are kept in a folder of the job"
_ARCHIVE = Table(
    "archive",
    {
        "none": Table("none", {}),
        "tar": Table("tar", {"compressionLevel": WHOLE}),
        "zip": Table("zip", {}),
    },
)
_S3 = Table(
    "s3",
    {"key": TEXT},
    refused=because(
        f"{_STORE}: write key alone",
        "accessKeySecret", "bucket", "caSecret", "createBucketIfNotPresent", "encryptionOptions", "endpoint",
        "insecure", "region", "roleARN", "secretKeySecret", "sessionTokenSecret", "useSDKCreds",
    ),
)  # fmt: skip
_ARTIFACT = Table(
    "artifacts",
    {
        **texts("name", "path", "from", "subPath", "globalName"),
        "fromExpression": EXPRESSION,
        "archive": _ARCHIVE,
        "mode": WHOLE,
        "recurseMode": FLAG,
        "optional": FLAG,
        "raw": Table("raw", {"data": TEXT}),
        "s3": _S3,
    },
    {"artifactGC": TIDYING},
    because(
        "let a command fetch it, or put it there",
        "artifactory", "azure", "gcs", "git", "hdfs", "http", "oss", "plugin",
    )
    | {"deleted": "Argo writes it", "archiveLogs": "`ffdl logs` has them"},
)  # fmt: skip
_ARTIFACTS = {"artifacts": Each(_ARTIFACT)}
_ELSEWHERE = {
    "configMapKeyRef": "write the value, or --param",
    "event": "write the value, or --param",
    "jqFilter": "",
    "jsonPath": "",
}
_PARAMETER: dict[str, Kind] = {"name": TEXT, "value": VALUE, "default": VALUE, "description": TEXT, "enum": Each(VALUE)}
ARGUMENTS = Table(
    "arguments",
    {
        "parameters": Each(
            Table(
                "arguments: parameters",
                {"name": TEXT, "value": VALUE, "enum": Each(VALUE)},
                {
                    "description": "it is for people",
                    "default": "Argo looks at those of inputs alone",
                    "globalName": "Argo looks at those of outputs alone",
                },
                {"valueFrom": "write value, or --param"},
            )
        ),
        **_ARTIFACTS,
    },
)
INPUTS = Table(
    "inputs",
    {
        "parameters": Each(
            Table(
                "inputs: parameters",
                _PARAMETER,
                {"globalName": "Argo looks at those of outputs alone"},
                {"valueFrom": "write value or default"},
            )
        ),
        **_ARTIFACTS,
    },
)
OUTPUTS = Table(
    "outputs",
    {
        "parameters": Each(
            Table(
                "outputs: parameters",
                {
                    **_PARAMETER,
                    "globalName": TEXT,
                    "valueFrom": Table(
                        "outputs: parameters: valueFrom",
                        {
                            **texts("path", "parameter"),
                            "expression": EXPRESSION,
                            "default": VALUE,
                            "supplied": Table("supplied", {}),
                        },
                        refused=_ELSEWHERE,
                    ),
                },
            )
        ),
        **_ARTIFACTS,
    },
    refused=because("Argo writes it", "exitCode", "result"),
)

TEMPLATE = Table("templates", {})
_REFERENCE: dict[str, Kind] = {
    "template": TEXT,
    "arguments": ARGUMENTS,
    "templateRef": Table("templateRef", {**texts("name", "template"), "clusterScope": FLAG}),
}
_HOOKS = {"hooks": Named(Table("hooks", {**_REFERENCE, "expression": EXPRESSION})), "onExit": TEXT}

_CALL: dict[str, Kind] = {
    **_REFERENCE,
    **_HOOKS,
    "inline": TEMPLATE,
    **texts("name", "when", "withParam"),
    "withItems": Each(ANY),
    "withSequence": Table("withSequence", {**dict.fromkeys(("count", "start", "end"), WHOLE_OR_TEXT), "format": TEXT}),
    "continueOn": Table("continueOn", {"failed": FLAG, "error": FLAG}),
}
STEP = Table("steps", _CALL)
DAG_TASK = Table("dag: tasks", {**_CALL, "depends": TEXT, "dependencies": TEXTS})

_EVERYWHERE = {  # of Workflow and template
    "retryStrategy": RETRY,
    "volumes": Each(VOLUME),
    "podSpecPatch": Patch(POD_SPEC_PATCH),
    "serviceAccountName": TEXT,
    "automountServiceAccountToken": FLAG,
}
_LOCKS = {"synchronization": "use parallelism"}
_HOSTS = {"hostAliases": "write the address where the name is"}
TEMPLATE.define(
    {
        **_EVERYWHERE,
        "name": TEXT,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "container": CONTAINER,
        "script": SCRIPT,
        "containerSet": CONTAINER_SET,
        "initContainers": Each(INIT_CONTAINER),
        "sidecars": Each(SIDECAR),
        "dag": Table("dag", {"tasks": Each(DAG_TASK), "failFast": FLAG, "target": TEXT}),
        "steps": Each(Each(STEP), least=1),
        "resource": Table(
            "resource",
            {"action": OneOf("apply", "create"), "manifest": TEXT, "setOwnerReference": FLAG},
            refused=because("", "failureCondition", "flags", "mergeStrategy", "successCondition")
            | {"manifestFrom": "write manifest"},
        ),
        "suspend": Table("suspend", {"duration": WHOLE_OR_TEXT}),
        "parallelism": AtLeast(1),
        "failFast": FLAG,
        "daemon": FLAG,
        "timeout": TEXT,
        "activeDeadlineSeconds": WHOLE_OR_TEXT,
        "metadata": METADATA,
    },
    PLACEMENT
    | because(ARGO, "executor", "metrics", "annotations")
    | {"priorityClassName": PLACING, "securityContext": USERS},
    _LOCKS
    | _HOSTS
    | {"archiveLocation": _STORE}
    | because("run a container that does it", "data", "http", "plugin")
    | {"memoize": "its results would have to outlive the Workflow"},
)  # fmt: skip
SPEC = Table(
    "spec",
    {
        **_EVERYWHERE,
        **_HOOKS,
        "entrypoint": TEXT,
        "workflowTemplateRef": Table("workflowTemplateRef", {"name": TEXT, "clusterScope": FLAG}),
        "arguments": ARGUMENTS,
        "templates": Each(TEMPLATE),
        "templateDefaults": TEMPLATE,
        "workflowMetadata": Table(
            "workflowMetadata",
            {
                "labels": LABELS,
                "annotations": LABELS,
                "labelsFrom": Named(Table("labelsFrom", {"expression": EXPRESSION})),
            },
        ),
        "volumeClaimTemplates": Each(CLAIM),
        "suspend": FLAG,
        "shutdown": OneOf("", "Stop", "Terminate"),
        "parallelism": AtLeast(1),
        "activeDeadlineSeconds": WHOLE,
        "priority": WHOLE,
    },
    PLACEMENT
    | because(NETWORK, "hostNetwork", "dnsPolicy", "dnsConfig")
    | because(TIDYING, "artifactGC", "podGC", "ttlStrategy", "volumeClaimGC")
    | because(PODS, "podMetadata", "podDisruptionBudget")
    | because(ARGO, "executor", "metrics", "archiveLogs")
    | {"podPriorityClassName": PLACING, "securityContext": USERS, "imagePullSecrets": IMAGES},
    _LOCKS | _HOSTS | {"artifactRepositoryRef": _STORE},
)
WORKFLOW = Table(
    "Workflow",
    {
        "apiVersion": OneOf("argoproj.io/v1alpha1"),
        "kind": OneOf("Workflow"),
        "metadata": Table(
            "metadata",
            {
                **texts("name", "generateName", "namespace", "uid", "creationTimestamp"),
                "labels": LABELS,
                "annotations": LABELS,
            },
            because(
                CLUSTER, "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation",
                "managedFields", "ownerReferences", "resourceVersion", "selfLink",
            ),
        ),
        "spec": SPEC,
        "status": ANY,
    },
)  # fmt: skip
