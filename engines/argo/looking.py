"""Reading any object of a cluster, in any namespace, for checks: there, not there, or not for these credentials."""

from __future__ import annotations

import json
from typing import Any

from .access import JSON, Api, Object
from .errors import ApiError

PLURALS = {
    "ConfigMap": "configmaps", "Secret": "secrets", "ServiceAccount": "serviceaccounts", "Role": "roles",
    "RoleBinding": "rolebindings", "ResourceQuota": "resourcequotas", "LimitRange": "limitranges",
    "NetworkPolicy": "networkpolicies", "PersistentVolumeClaim": "persistentvolumeclaims",
    "CronWorkflow": "cronworkflows", "Deployment": "deployments",
}  # fmt: skip


class Unseen(Exception):  # noqa: N818 (reads as the sentence it is)
    """These credentials may not look."""


def look(api: Api, path: str) -> Object | None:
    """What is at `path` of the API; None if nothing is. Raises Unseen, EngineError."""
    try:
        with api.open("GET", path, f"get {path}", headers={"Accept": JSON}) as response:
            found: Object = json.loads(response.read())
            return found
    except ApiError as error:
        if error.status == 404:
            return None
        if error.status == 403:
            raise Unseen(str(error)) from None
        raise


def path_of(wanted: Object) -> str:
    """Where the API has the object that `wanted` describes."""
    api, metadata = wanted["apiVersion"], wanted["metadata"]
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    if wanted["kind"] == "Namespace":
        return f"{root}/namespaces/{metadata['name']}"
    return f"{root}/namespaces/{metadata['namespace']}/{PLURALS[wanted['kind']]}/{metadata['name']}"


def review(api: Api, kind: str, group: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Asks the API server about permissions or identity; its answer is the `status`. Raises Unseen, EngineError."""
    path = f"/apis/{group}/{kind.lower()}s"
    body = {"apiVersion": group, "kind": kind, "spec": spec}
    headers = {"Accept": JSON, "Content-Type": JSON}
    try:
        with api.open("POST", path, f"create {kind}", headers=headers, data=json.dumps(body).encode()) as response:
            status: dict[str, Any] = json.loads(response.read()).get("status") or {}
            return status
    except ApiError as error:
        if error.status in (403, 404):
            raise Unseen(str(error)) from None
        raise
