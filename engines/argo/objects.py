"""The objects of a job beside its Workflow, `<id>`, and their names. Pure.

ConfigMap and Secrets `<id>`, `<id>-pull` and the ConfigMap `<id>-status` belong to the Workflow and go with it. The
ConfigMap `<id>-record` says where the results are when the Workflow is gone; the Secret `<id>-store` belongs to it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...learner import contract
from .access import Kind, Object

STATUS, RECORD, STORE, PULL = "-status", "-record", "-store", "-pull"
REPORT_KEY = "report"
JOB_KEY, NAME_KEY, SUMMARY_KEY, SUBMITTED_KEY, END_KEY = "job", "name", "summary", "submitted", "status"
STORE_SECRET_KEY, HOST_RESULTS_KEY = "store-secret", "host-results"


def owned_by(kind: Kind, owner: Object) -> list[Object]:
    reference = {"apiVersion": kind.api, "kind": kind.name}
    return [{**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]


def metadata(
    job_id: str, suffix: str = "", owners: list[Object] | None = None, labels: Mapping[str, str] | None = None
) -> Object:
    found: Object = {"name": job_id + suffix, "labels": {contract.LABEL_JOB: job_id, **(labels or {})}}
    return found | ({"ownerReferences": owners} if owners else {})


def config_map(job_id: str, files: Mapping[str, bytes], owners: list[Object]) -> Object:
    return {"metadata": metadata(job_id, owners=owners), "binaryData": encoded(files)}


def secret(job_id: str, suffix: str, files: Mapping[str, bytes], owners: list[Object]) -> Object:
    kind = "kubernetes.io/dockerconfigjson" if suffix == PULL else "Opaque"
    return {"metadata": metadata(job_id, suffix, owners), "type": kind, "data": encoded(files)}


def status_map(job_id: str, owners: list[Object]) -> Object:
    """Where the helper's reports go."""
    return {"metadata": metadata(job_id, STATUS, owners, {contract.LABEL_REPORT: "true"})}


def record(job_id: str, workflow: Object, spec: contract.JobSpec) -> Object:
    """What `show`, `logs` and `download` need to know of a job when its Workflow is gone."""
    annotations = workflow["metadata"].get("annotations") or {}
    volumes = {volume["name"]: volume for volume in workflow["spec"].get("volumes") or ()}
    data = {
        JOB_KEY: replace(spec, command="", env={}, metrics={}).to_json(),
        NAME_KEY: annotations.get(contract.ANNOTATION_NAME, ""),
        SUMMARY_KEY: annotations.get(contract.ANNOTATION_SUMMARY, ""),
        SUBMITTED_KEY: workflow["metadata"].get("creationTimestamp") or "",
        STORE_SECRET_KEY: volumes.get("store-credentials", {}).get("secret", {}).get("secretName", ""),
        HOST_RESULTS_KEY: volumes.get("host-results", {}).get("hostPath", {}).get("path", ""),
    }
    data[STORE_SECRET_KEY] = data[STORE_SECRET_KEY].replace("{{workflow.name}}", job_id)
    return {"metadata": metadata(job_id, RECORD, labels={contract.LABEL_RECORD: "true"}), "data": data}


def owner_of(suffix: str, workflow: list[Object], record: list[Object]) -> list[Object]:
    """A Secret's owner: way to the results is kept with the record, all else goes with the Workflow."""
    return record if suffix == STORE else workflow


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


def decoded(values: Mapping[str, str] | None) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in (values or {}).items()}


def report(found: Object | None) -> dict[str, Any]:
    """The helper's last report in the ConfigMap `<id>-status`."""
    return json_object(((found or {}).get("data") or {}).get(REPORT_KEY))


def json_object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def job_of(found: Object) -> str:
    """The id of the job that an object belongs to."""
    return str((found["metadata"].get("labels") or {}).get(contract.LABEL_JOB, ""))
