"""Carries out what `engines.sweep` decides: for the jobs of one namespace, one job at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from ...learner import contract
from ...workflows.site import Site
from ..base import EngineError
from ..status import job_status
from ..sweep import (
    KEEPERS,
    Action,
    DeleteJob,
    DeletePod,
    DeleteRecord,
    StopJob,
    helper_runs,
    sweep,
    sweep_carrier,
    sweep_record,
    worth_a_look,
)
from . import objects, records
from .access import CONFIG_MAPS, EVENTS, PODS, WORKFLOWS, Api, Object
from .pods import CARRIER_ROLE

COMPLETED_LABEL = "workflows.argoproj.io/completed"
MOST_ASKED = 20  # pods of a job whose events are looked at


def sweep_job(api: Api, workflow: Object, now: float | None = None) -> list[Action]:
    """What is to be done about one job, read off the cluster as it is now. Raises EngineError."""
    now = time.time() if now is None else now
    job = f"{contract.LABEL_JOB}={workflow['metadata']['name']}"
    pods = list(api.list(PODS, f"{job},{contract.LABEL_ROLE} in ({','.join(KEEPERS)})"))
    if helper_runs(pods):
        return sweep(workflow, pods, now)
    pods = list(api.list(PODS, f"{job},{contract.LABEL_ROLE}!={CARRIER_ROLE}"))
    return sweep(workflow, pods, now, _events(api, pods))


def sweep_seen(api: Api, workflow: Object, now: float | None = None) -> list[Action]:
    """As `sweep_job`, for commands that have a Workflow in hand: asks the cluster only where that may be worth it, and
    does what is to be done. Raises EngineError.
    """
    now = time.time() if now is None else now
    actions = sweep_job(api, workflow, now) if worth_a_look(workflow, now) else []
    for action in actions:
        apply(api, action)
    return actions


def apply(api: Api, action: Action) -> None:
    """Raises EngineError."""
    if isinstance(action, StopJob):
        reason = {contract.ANNOTATION_REASON: action.why}
        shutdown = "Terminate" if action.at_once else "Stop"
        api.patch(WORKFLOWS, action.job_id, {"metadata": {"annotations": reason}, "spec": {"shutdown": shutdown}})
    elif isinstance(action, DeleteJob):
        api.delete(WORKFLOWS, action.job_id)
        api.delete(CONFIG_MAPS, action.job_id + objects.RECORD)
    elif isinstance(action, DeletePod):
        api.delete(PODS, action.pod, grace=0 if action.force else None)
    elif isinstance(action, DeleteRecord):
        api.delete(CONFIG_MAPS, action.job_id + objects.RECORD)


def sweep_namespace(api: Api, site: Site, now: float | None = None) -> Iterator[tuple[Action, str]]:
    """Does all that is to be done; yields each action with why it could not be done, or "". Raises EngineError."""
    now = time.time() if now is None else now
    workflows = {}
    for found in api.list(WORKFLOWS, contract.LABEL_JOB, metadata=True):
        name, labels = found["metadata"]["name"], found["metadata"].get("labels") or {}
        workflows[name] = labels.get(COMPLETED_LABEL) == "true"
    for job_id, completed in workflows.items():
        if not completed and (workflow := api.find(WORKFLOWS, job_id)) is not None:
            yield from _done(api, sweep_job(api, workflow, now))
    for record in records.records(api):
        job_id = objects.job_of(record)
        ended = records.ended_status(record)
        if ended is None and workflows.get(job_id):
            _note_end(api, record, job_id)
        finished = None if ended is None else ended.finished
        yield from _done(api, sweep_record(record, job_id in workflows, finished, now, site.record_ttl))
    for pod in api.list(PODS, f"{contract.LABEL_ROLE}={CARRIER_ROLE}", metadata=True):
        yield from _done(api, sweep_carrier(pod, now))


def _done(api: Api, actions: list[Action]) -> Iterator[tuple[Action, str]]:
    for action in actions:
        try:
            apply(api, action)
        except EngineError as error:
            yield action, str(error)
        else:
            yield action, ""


def _note_end(api: Api, record: Object, job_id: str) -> None:
    """How the job ended is known for longer than its Workflow is there."""
    with suppress(EngineError):
        workflow = api.find(WORKFLOWS, job_id)
        if workflow is not None:
            report = objects.report(api.find(CONFIG_MAPS, job_id + objects.STATUS))
            records.note_end(api, record, job_status(workflow, report))


def _events(api: Api, pods: list[Object]) -> list[Object]:
    pending = (pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending")
    asked = (api.list(EVENTS, fields=f"involvedObject.uid={pod['metadata']['uid']}") for pod in pending)
    return [event for found in islice(asked, MOST_ASKED) for event in found]
