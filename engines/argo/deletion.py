"""Removing a job from the cluster, and waiting until its pods and its volume are gone."""

from __future__ import annotations

import time

from ...learner import contract
from ..base import EngineError
from . import objects
from .access import CLAIMS, CONFIG_MAPS, PODS, SECRETS, WORKFLOWS, Api
from .pods import CARRIER_ROLE

GRACE = 1  # seconds that pods get: what they would still do is not wanted
FORCE_AFTER = 30.0  # seconds after which a pod counts as one of a node that is gone
PATIENCE = 90.0
POLL = 0.25


def remove(api: Api, job_id: str) -> None:
    """All objects of the job; what it stored stays. Raises EngineError if something is left."""
    stop(api, job_id)
    forget(api, job_id)


def stop(api: Api, job_id: str) -> None:
    """The Workflow and its pods; returns when they are gone."""
    api.delete(WORKFLOWS, job_id)
    began = time.monotonic()
    forced = False
    while pods := _pods(api, job_id):
        waited = time.monotonic() - began
        if waited > PATIENCE:
            raise EngineError(f"{len(pods)} pods of {job_id} do not go, such as {pods[0]}; delete the job again")
        if not forced and waited > FORCE_AFTER:
            forced = True
            for pod in pods:
                api.delete(PODS, pod, grace=0)
        elif not forced:
            for pod in pods:
                api.delete(PODS, pod, grace=GRACE)
        time.sleep(POLL)


def forget(api: Api, job_id: str) -> None:
    """Everything else; the record goes last, so that a deletion that was interrupted can be asked for again."""
    for suffix in ("", objects.PULL, objects.STORE):
        api.delete(SECRETS, job_id + suffix)
    for suffix in ("", objects.STATUS):
        api.delete(CONFIG_MAPS, job_id + suffix)
    deadline = time.monotonic() + PATIENCE
    while api.find(CLAIMS, f"{job_id}-job") is not None:  # Kubernetes removes what the Workflow owned
        if time.monotonic() > deadline:
            raise EngineError(f"the volume of {job_id} (claim {job_id}-job) does not go; delete the job again")
        time.sleep(POLL)
    api.delete(CONFIG_MAPS, job_id + objects.RECORD)


def _pods(api: Api, job_id: str) -> list[str]:
    labels = f"{contract.LABEL_JOB}={job_id},{contract.LABEL_ROLE}!={CARRIER_ROLE}"
    return [pod["metadata"]["name"] for pod in api.list(PODS, labels, metadata=True)]
