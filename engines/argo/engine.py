"""The cluster as commands see it: every call speaks to the API server, and keeps nothing between calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learner import contract
from ..base import EngineError, Event, LogLine, NoSuchJob, Refused, Selection
from ..nodes import is_being_stopped
from ..status import HALTED, NOT_STARTED, JobStatus, job_status
from . import deletion, objects, records
from .access import CONFIG_MAPS, PODS, SECRETS, WORKFLOWS, Api, Object
from .connection import connect
from .patience import patiently
from .pods import live, wants
from .reasons import explained, status_of
from .sweeping import sweep_seen
from .watching import GONE, Feed, Source

if TYPE_CHECKING:
    from ...workflows.compile import Compiled
    from ...workflows.site import Site

IS_JOB = contract.LABEL_JOB
NOT_ENDED = f"{IS_JOB},workflows.argoproj.io/completed!=true"
ENDED = f"{IS_JOB},workflows.argoproj.io/completed=true"
REPORTS = f"{contract.LABEL_REPORT}=true"
TERMINAL = ("Succeeded", "Failed", "Error")
LOOK = 3.0  # seconds between two looks at jobs of which nothing is heard
HALT_LOOK = 1.0  # seconds between two looks at whether a halt is heard


class ArgoEngine:
    """Runs jobs in one namespace of a cluster. Which one is found as kubectl finds it. Raises EngineError."""

    name = "argo"

    def __init__(self, namespace: str | None = None, context: str | None = None, kubeconfig: str | None = None) -> None:
        self._api = Api(connect(namespace, context, kubeconfig))
        self._site: Site | None = None
        self.on_progress: Callable[[int, int], None] = lambda done, total: None  # bytes of a long transfer

    @property
    def namespace(self) -> str:
        return self._api.namespace

    @property
    def site(self) -> Site:
        """What this namespace's administrator has decided. Raises Refused if it is not made for jobs."""
        if self._site is None:
            self._site = _read_site(self._api)
        return self._site

    def submit(self, compiled: Compiled, job_id: str) -> None:
        from .submission import submit

        submit(self._api, self.site, job_id, compiled.workflow, compiled.config, compiled.secrets)

    def ids(self) -> Sequence[str]:
        found: dict[str, str] = {}
        for entry in self._api.list(CONFIG_MAPS, records.SELECTOR, metadata=True):
            found[objects.job_of(entry)] = entry["metadata"]["creationTimestamp"]
        for entry in self._api.list(WORKFLOWS, IS_JOB, metadata=True):
            found[entry["metadata"]["name"]] = entry["metadata"]["creationTimestamp"]
        return [job_id for job_id, _ in sorted(found.items(), key=lambda item: (item[1], item[0]), reverse=True)]

    def workflow(self, job_id: str) -> dict[str, Any]:
        found = self._find(job_id)
        if found is None:
            if records.find(self._api, job_id) is None:
                raise _no_such_job(job_id)
            raise Refused(f"the Workflow of {job_id} is gone; `ffdl show {job_id}` tells what is known of the job")
        return found

    def _find(self, job_id: str) -> Object | None:
        found = self._api.find(WORKFLOWS, job_id)
        return found if found is not None and objects.job_of(found) == job_id else None

    def status(self, job_id: str) -> JobStatus:
        workflow = self._find(job_id)
        if workflow is not None:
            report = self._api.find(CONFIG_MAPS, job_id + objects.STATUS)
            return self._seen(workflow, objects.report(report))
        record = records.find(self._api, job_id)
        if record is None:
            raise _no_such_job(job_id)
        if records.ended_status(record) is None:
            with suppress(EngineError):
                ended = records.stored_end(self._api, lambda: self.site, record)
                records.note_end(self._api, record, ended)
                return ended
        return records.status(record)

    def _seen(self, workflow: Object, report: dict[str, Any] | None, record: Object | None = None) -> JobStatus:
        """The status of a job, and what whoever looks at it does: helps one whose pods can't start to its end, says
        why it waits, and keeps the end of one that is over in its record.
        """
        status = status_of(self._api, workflow, report)
        if not status.terminal:
            with suppress(EngineError):
                if sweep_seen(self._api, workflow):
                    workflow = self._api.find(WORKFLOWS, status.id) or workflow
                    status = status_of(self._api, workflow, report)
            return explained(self._api, status)
        if workflow["metadata"].get("deletionTimestamp") is None:
            with suppress(EngineError):  # the sweep does the same
                record = record or records.find(self._api, status.id)
                if record is not None and records.ended_status(record) is None:
                    records.note_end(self._api, record, status)
        return status

    def list(self) -> Sequence[JobStatus]:
        kept = {objects.job_of(record): record for record in records.records(self._api)}
        ends = {job_id: ended for job_id, record in kept.items() if (ended := records.ended_status(record)) is not None}
        found = {status.id: status for status in self._statuses(NOT_ENDED, kept)}
        if kept.keys() - ends.keys() - found.keys():
            found |= {status.id: status for status in self._statuses(ENDED, kept) if status.id not in found}
        for job_id, record in kept.items():
            if job_id not in found:
                found[job_id] = ends.get(job_id) or records.status(record)
        return sorted(found.values(), key=lambda status: (status.submitted or 0.0, status.id), reverse=True)

    def _statuses(self, labels: str, kept: dict[str, Object]) -> Iterator[JobStatus]:
        reports = {objects.job_of(entry): objects.report(entry) for entry in self._api.list(CONFIG_MAPS, REPORTS)}
        for workflow in self._api.list(WORKFLOWS, labels):
            job_id = workflow["metadata"]["name"]
            yield self._seen(workflow, reports.get(job_id), kept.get(job_id))

    def watch(self, job_id: str | None = None, timeout: float | None = None) -> Iterator[JobStatus]:
        deadline = None if timeout is None else time.monotonic() + timeout
        seen: dict[str, JobStatus] = {}
        first = [self.status(job_id)] if job_id else self.list()
        for status in first:
            seen[status.id] = status
            yield status
        if job_id and first[0].terminal:
            return
        for status in self._changes(job_id, deadline):
            if seen.get(status.id) != status:
                seen[status.id] = status
                yield status
            if job_id and status.terminal:
                return

    def _changes(self, job_id: str | None, deadline: float | None) -> Iterator[JobStatus]:
        """A status at each change of a Workflow or of a helper's report, and now and then of jobs that wait."""
        feed = Feed(self._api, *_sources(job_id))
        workflows: dict[str, Object] = {}
        reports: dict[str, dict[str, Any]] = {}
        try:
            while (left := LOOK if deadline is None else min(LOOK, deadline - time.monotonic())) > 0:
                change = feed.next(left)
                if change is None:
                    for name in [name for name, workflow in workflows.items() if not _ended(workflow)]:
                        yield patiently(partial(self._seen, workflows[name], reports.get(name)), deadline)
                    continue
                for entry in change.objects:
                    name = objects.job_of(entry)
                    if change.source.kind is CONFIG_MAPS:
                        reports[name] = objects.report(entry)
                    elif change.what == GONE:
                        workflows.pop(name, None)
                    else:
                        workflows[name] = entry
                    if name in workflows:
                        yield patiently(partial(self._seen, workflows[name], reports.get(name)), deadline)
                if job_id and change.source.kind is WORKFLOWS and job_id not in workflows:
                    yield patiently(partial(self.status, job_id), deadline)  # only its record is left, or nothing
        finally:
            feed.close()

    def logs(
        self,
        job_id: str,
        *,
        learner: int | None = None,
        step: str | None = None,
        attempt: int | None = None,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
    ) -> Iterator[LogLine]:
        from . import logs

        wanted = Selection(learner=learner, step=step, attempt=attempt, tail=tail, since=since)
        workflow = self._find(job_id)
        if workflow is None:
            return logs.of_record(self._api, self.site, job_id, self.status(job_id).learners, wanted)
        job = logs.Job(self._api, lambda: self.site, workflow)
        return logs.follow(job, wanted) if follow else logs.read(job, wanted)

    def metrics(self, job_id: str, follow: bool = False) -> Iterator[dict[str, Any]]:
        from .metrics import metrics

        workflow = self._find(job_id)
        learners = (self.status(job_id) if workflow is None else job_status(workflow)).learners
        return metrics(self._api, lambda: self.site, job_id, workflow, learners, follow)

    def events(self, job_id: str) -> Sequence[Event]:
        from .events import events

        return events(self._api, self.workflow(job_id))

    def halt(self, job_id: str, wait: bool = True, timeout: float | None = None) -> None:
        self._refuse_unfit(self.workflow(job_id), "halt")
        self._api.patch(WORKFLOWS, job_id, {"spec": {"suspend": True}})
        if wait:
            self.until_halted(job_id, timeout)

    def until_halted(self, job_id: str, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        unheard: frozenset[str] = frozenset()
        while (workflow := patiently(partial(self._halting, job_id), deadline)) is not None:
            if not workflow["spec"].get("suspend"):
                raise EngineError(f"{job_id} was resumed meanwhile: it is not halted")
            alone = _without_helper(workflow)
            for pod in unheard & alone:  # no helper hears of the halt: the pods are told from here
                with suppress(EngineError):  # they are told again at the next look
                    self._api.delete(PODS, pod)
            unheard = alone
            if deadline is not None and time.monotonic() > deadline:
                raise EngineError(f"{job_id} is not halted yet; it goes on halting, `ffdl status {job_id}` tells when")

    def _halting(self, job_id: str) -> Object | None:
        """The Workflow after a look at it; None once the job is halted or has ended."""
        for status in self.watch(job_id, HALT_LOOK):
            if status.terminal or status.state == HALTED:
                return None
        return self.workflow(job_id)

    def resume(self, job_id: str) -> None:
        self._refuse_unfit(self.workflow(job_id), "resume")
        self._api.patch(WORKFLOWS, job_id, {"spec": {"suspend": None}})

    def wants(self, pipeline: str, uid: str, node: str) -> bool:
        """Whether a Workflow that has a job as its node still wants that; as far as can be told, it does."""
        with suppress(EngineError):
            return wants(self._api.find(WORKFLOWS, pipeline), uid, node)
        return True

    def stop(self, job_id: str) -> None:
        workflow = self.workflow(job_id)
        self._refuse_unfit(workflow, "stop")
        annotations = workflow["metadata"].get("annotations") or {}
        if workflow["spec"].get("suspend") or not live(workflow, "checkpoint", ("Running",)):
            # Stopped while suspended, a Workflow would never end.
            reason = annotations.get(contract.ANNOTATION_REASON, "stopped")
            changes: Object = {"spec": {"suspend": None, "shutdown": "Stop"}}
            changes["metadata"] = {"annotations": {contract.ANNOTATION_REASON: reason}}
        else:
            changes = {"metadata": {"annotations": {contract.ANNOTATION_STOP: "true"}}}
        self._api.patch(WORKFLOWS, job_id, changes)

    @staticmethod
    def _refuse_unfit(workflow: Object, verb: str) -> None:
        name = workflow["metadata"]["name"]
        if job_status(workflow).state == NOT_STARTED:
            raise Refused(f"{name} has not been submitted whole: there is nothing to {verb}; `ffdl delete {name}`")
        if _ended(workflow):
            phase = workflow["status"]["phase"]
            ended = "COMPLETED" if phase == "Succeeded" else "FAILED"
            raise Refused(f"{name} is {ended}: there is nothing to {verb}; `ffdl resubmit {name}` runs it again")
        if verb != "stop" and is_being_stopped(workflow):
            raise Refused(f"{name} is being stopped: there is nothing to {verb}")

    def resubmit(self, job_id: str, new_id: str, from_checkpoint: bool = False) -> None:
        from ..resubmission import job_file, summarized
        from .submission import submit

        workflow = summarized(self.workflow(job_id), job_id, from_checkpoint)
        # Argo has put the old name in where volumes name the job's ConfigMap and Secrets: the new one has its own
        spec = json.loads(json.dumps(workflow["spec"]).replace(job_id, "{{workflow.name}}"))
        config = objects.decoded(self._api.get(CONFIG_MAPS, job_id).get("binaryData"))
        config[contract.JOB_FILE] = job_file(config[contract.JOB_FILE], job_id, from_checkpoint)
        if contract.CODE_FILE not in config:
            from .retrieval import submitted_code

            config[contract.CODE_FILE] = submitted_code(self._api, self.site, job_id)
        secrets = {}
        for suffix in ("", objects.PULL, objects.STORE):
            if (found := self._api.find(SECRETS, job_id + suffix)) is not None:
                secrets[suffix] = objects.decoded(found.get("data"))
        submit(self._api, self.site, new_id, {**workflow, "spec": spec}, config, secrets)

    def delete(self, job_id: str, results: bool = False) -> None:
        if self._find(job_id) is None and records.find(self._api, job_id) is None:
            raise _no_such_job(job_id)
        deletion.stop(self._api, job_id)
        if results:
            from .retrieval import remove

            remove(self._api, self.site, job_id)
        deletion.forget(self._api, job_id)

    def download(self, job_id: str, what: str, folder: Path) -> Path:
        from .retrieval import download

        self.status(job_id)
        return download(self._api, lambda: self.site, job_id, what, folder, self.on_progress)


def _ended(workflow: Object) -> bool:
    return (workflow.get("status") or {}).get("phase") in TERMINAL


def _sources(job_id: str | None) -> tuple[Source, Source]:
    if job_id is None:
        return Source(WORKFLOWS, IS_JOB), Source(CONFIG_MAPS, REPORTS)
    workflow = Source(WORKFLOWS, fields=f"metadata.name={job_id}")
    return workflow, Source(CONFIG_MAPS, fields=f"metadata.name={job_id}{objects.STATUS}")


def _read_site(api: Api) -> Site:
    from ...workflows.site import CONFIG_NAME, CONFIG_VERSION, Site, SiteError

    config = api.find(CONFIG_MAPS, CONFIG_NAME)
    if config is None:
        raise Refused(
            f"namespace {api.namespace} is not made for jobs: it has no ConfigMap {CONFIG_NAME}; apply "
            "argo-config/tenant (`ffdl doctor` says what is missing) or name another namespace with -n"
        )
    try:
        site = Site.from_config(config.get("data") or {})
    except SiteError as error:
        raise Refused(f"namespace {api.namespace}: {error}") from None
    if site.version > CONFIG_VERSION:
        raise Refused(
            f"namespace {api.namespace} is set up by a newer ffdl (argo-config version {site.version}, this command "
            f"knows {CONFIG_VERSION}); install that version of ffdl"
        )
    if site.version < CONFIG_VERSION:
        raise Refused(
            f"namespace {api.namespace} is set up by an older ffdl (argo-config version {site.version}); apply this "
            f"version's argo-config/tenant (version {CONFIG_VERSION}) to it"
        )
    return site


def _without_helper(workflow: Object) -> frozenset[str]:
    """Pods that nobody tells of the halt: the helper is gone, and Argo starts none while suspended."""
    if live(workflow, "checkpoint", ("Running",)):
        return frozenset()
    return frozenset(
        pod for template in (*contract.MEMBERS, "download", "checkpoint") for pod in live(workflow, template)
    )


def _no_such_job(job_id: str) -> NoSuchJob:
    return NoSuchJob(f"no job {job_id}; `ffdl list -a` shows all")
