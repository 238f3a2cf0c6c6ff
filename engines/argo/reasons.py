"""A job's status where its Workflow alone does not say: its pods and their Events know."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from ...learner import contract, waiting
from ..base import EngineError
from ..status import PENDING, PROCESSING, JobStatus, job_status
from .access import EVENTS, PODS, Api, Object
from .pods import CARRIER_ROLE

SOON = 2.0  # seconds in which a pod may well be starting
MOST_PODS = 5  # whose Events are looked at
HELPER = "checkpoint"


def status_of(api: Api, workflow: Object, report: dict[str, Any] | None = None) -> JobStatus:
    """As `job_status`. A suspended Workflow's node stays Pending when its pod is deleted: there the pods are asked."""
    now = time.time()
    status = job_status(workflow, report, now)
    if status.halting and all(node.phase != "Running" for node in status.nodes):
        labels = f"{contract.LABEL_JOB}={status.id},{contract.LABEL_ROLE}!={CARRIER_ROLE}"
        unfinished = api.list(PODS, labels, "status.phase!=Succeeded,status.phase!=Failed", metadata=True)
        if next(unfinished, None) is None:
            return job_status(workflow, report, now, pods_gone=True)
    return status


def needs_a_look(status: JobStatus, now: float) -> bool:
    """Whether the job waits, and the Workflow does not say what for."""
    if status.state != PENDING or waiting.judge(status.reason) != waiting.STARTING:
        return False
    since = [node.started for node in status.nodes if node.phase == "Pending" and node.started is not None]
    return bool(since) and now - min(since) > SOON


def explained(api: Api, status: JobStatus) -> JobStatus:
    """The status with a reason, if the cluster says any. Costs calls: see `needs_a_look`."""
    now = time.time()
    if needs_a_look(status, now):
        with suppress(EngineError):
            if said := _said_of_pods(api, status.id):
                return replace(status, reason=said)
    if status.state in (PENDING, PROCESSING) and waiting.judge(status.reason) == waiting.STARTING:
        helper = next((node for node in status.nodes if node.name == HELPER), None)
        if helper is not None and helper.phase == "Pending" and waiting.judge(helper.message) != waiting.STARTING:
            return replace(status, reason=f"the job's helper does not start: {' '.join(helper.message.split())}")
    return status


def _said_of_pods(api: Api, job_id: str) -> str:
    labels = f"{contract.LABEL_JOB}={job_id},{contract.LABEL_ROLE}!={CARRIER_ROLE}"
    pods = list(api.list(PODS, labels, "status.phase=Pending"))
    pods.sort(key=lambda pod: _role(pod) == HELPER)  # what the user asked for comes first
    for pod in islice(pods, MOST_PODS):
        events = list(api.list(EVENTS, fields=f"involvedObject.uid={pod['metadata']['uid']}"))
        if message := waiting.pod_message(pod, events):
            return message
    return ""


def _role(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(contract.LABEL_ROLE, ""))
