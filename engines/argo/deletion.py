"""Removing a job from the cluster, and waiting until its pods and its volume are gone."""

from __future__ import annotations

import time

from ...learner import contract
from ..base import EngineError
from . import objects
from .access import CLAIMS, CONFIG_MAPS, PODS, SECRETS, WORKFLOWS, Api, Object
from .errors import ApiError
from .pods import CARRIER_ROLE

GRACE = 1  # seconds that pods get: what they would still do is not wanted
FINALIZER = "workflows.argoproj.io/status"  # with which Argo's controller may keep pods until it has seen their end
FREE_AFTER = 5.0  # seconds after which it counts as having missed to let go: it would try again in two minutes
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
    while found := _pods(api, job_id):
        pods = [about["name"] for about in found]
        waited = time.monotonic() - began
        if waited > PATIENCE:
            raise EngineError(f"{len(pods)} pods of {job_id} do not go, such as {pods[0]}; delete the job again")
        if waited > FREE_AFTER:
            for about in found:
                _free(api, about)
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


def _pods(api: Api, job_id: str) -> list[Object]:
    """The metadata of each."""
    labels = f"{contract.LABEL_JOB}={job_id},{contract.LABEL_ROLE}!={CARRIER_ROLE}"
    return [pod["metadata"] for pod in api.list(PODS, labels, metadata=True)]


def _free(api: Api, about: Object) -> None:
    """Takes Argo's finalizer from a pod that is being deleted, and whose end nobody waits for any more."""
    finalizers = about.get("finalizers") or []
    if "deletionTimestamp" not in about or FINALIZER not in finalizers:
        return
    left = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
    try:
        api.patch(PODS, about["name"], {"metadata": {"finalizers": left, "resourceVersion": about["resourceVersion"]}})
    except ApiError as error:
        if error.status not in (403, 404, 409):  # 403: an older argo-config gives no right to it
            raise
