"""The embedded engine as commands see it: every call works on files, and wakes a runner where one is wanted."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learner import contract
from ..base import Damaged, EngineError, Event, LogLine, NoSuchJob, Refused, Selection
from ..nodes import is_being_stopped, is_training_job
from ..status import FAILED, HALTED, TRAINING_JOB, JobStatus, job_status
from ..status import TERMINAL as TERMINAL_STATES
from ..tree import node_path
from . import plain
from .notify import Watcher
from .runners import TERMINAL, revive, spawn
from .state import Home, Job, read_json

if TYPE_CHECKING:
    from ...workflows.compile import Compiled
    from .leases import Capacity
    from .records import Objects

HALT_LOOK = 1.0
PAUSE, MOST_PAUSE = 4.0, 2.0  # after a look at a Workflow, in times of what it took; seconds


class LocalEngine:
    """Runs jobs on this machine. `home` defaults to $FFDL_HOME; `python` is the learners' (default: this one)."""

    name = "local"

    def __init__(self, home: Path | None = None, python: str | None = None) -> None:
        if sys.platform != "linux":
            raise EngineError("the local engine needs Linux; use --engine argo with a cluster")
        self._home = Home(home)
        self._python = python or sys.executable
        revive(self._home)

    @property
    def machine(self) -> Capacity:
        """What jobs may use here."""
        from .leases import Capacity

        return Capacity.of_this_machine()

    def submit(self, compiled: Compiled, job_id: str) -> None:
        from . import environment, records

        workflow = {**compiled.workflow, "metadata": {**compiled.workflow["metadata"], "name": job_id}}
        workflow["metadata"].pop("generateName", None)
        self._check(workflow)

        def fill(job: Job) -> None:
            records.write(job, workflow, self._python, environment.store_environment(os.environ))
            records.write_objects(job, "configmaps", {job_id: compiled.config})
            for suffix, files in compiled.secrets.items():
                token = {} if suffix else {contract.TOKEN_FILE: records.token().encode()}
                records.write_objects(job, "secrets", {f"{job_id}{suffix}": {**files, **token}})

        spawn(self._home.create(job_id, fill))

    def submit_workflow(
        self,
        workflow: Mapping[str, Any],
        *,
        config_maps: Objects | None = None,
        secrets: Objects | None = None,
        templates: Sequence[Mapping[str, Any]] = (),
        replace: bool = False,
    ) -> str:
        """Starts an Argo Workflow that is no training job. Returns its name, which is the job's id.

        `config_maps` and `secrets` are the objects that it reads: contents by key, by the object's name; `templates`
        are WorkflowTemplates that it may refer to. Raises Refused for a Workflow that can't run here, and if the name
        is taken: with `replace` only by one that has not ended.
        """
        from ...workflows.template_refs import Library
        from . import records

        library = Library(templates)
        wanted = library.joined(plain.named(workflow))
        if stored := library.stored(wanted):
            wanted["status"] = {"storedTemplates": stored}
        self._check(wanted)
        job_id: str = wanted["metadata"]["name"]
        self._make_way(job_id, replace)

        def fill(job: Job) -> None:
            records.write(job, wanted, self._python, {})
            records.write_objects(job, "configmaps", config_maps or {})
            records.write_objects(job, "secrets", secrets or {})

        spawn(self._home.create(job_id, fill))
        return job_id

    def _make_way(self, job_id: str, replace: bool) -> None:
        try:
            state = self.status(job_id).state
        except NoSuchJob:
            return
        if not replace:
            raise Refused(f"{job_id} is there already ({state}); --replace runs it anew, --name NAME beside it")
        if state not in TERMINAL_STATES:
            raise Refused(f"{job_id} is {state}, not ended; `ffdl stop {job_id}` ends it")
        self.delete(job_id)

    def _check(self, workflow: dict[str, Any]) -> None:
        """Raises Refused for what can never run here."""
        from .checks import check

        check(workflow, self.machine, self._python)

    def ids(self) -> Sequence[str]:
        return self._home.ids()

    def workflow(self, job_id: str) -> dict[str, Any]:
        return self._home.job(job_id).workflow()

    def status(self, job_id: str) -> JobStatus:
        return self._status(self._home.job(job_id))

    @staticmethod
    def _status(job: Job) -> JobStatus:
        return _summary(job.path) or _read_status(job)

    def list(self) -> Sequence[JobStatus]:
        found, folder = [], str(self._home.path / "jobs")
        for job_id in self._home.ids():
            with contextlib.suppress(EngineError, OSError):  # deleted meanwhile
                status = _summary(f"{folder}/{job_id}")  # no Job made: there may be thousands
                found.append(status or _read_status(Job(self._home, job_id)))
        return found

    def watch(self, job_id: str | None = None, timeout: float | None = None) -> Iterator[JobStatus]:
        deadline = None if timeout is None else time.monotonic() + timeout
        watcher = Watcher()
        seen: dict[str, JobStatus] = {}
        watcher.watch(self._home.path / "jobs")
        try:
            while True:
                statuses = [self.status(job_id)] if job_id else self.list()
                for status in statuses:
                    if not status.terminal:
                        watcher.watch(self._home.path / "jobs" / status.id / "control")
                    if seen.get(status.id) != status:
                        seen[status.id] = status
                        yield status
                if job_id and statuses[0].terminal:
                    return
                left = HALT_LOOK if deadline is None else min(HALT_LOOK, deadline - time.monotonic())
                if left <= 0:
                    return
                watcher.wait(left)
                revive(self._home)
        finally:
            watcher.close()

    def watch_workflow(self, job_id: str) -> Iterator[dict[str, Any]]:
        """The whole Workflow object, at first and at its changes, until the job is terminal or halted.

        Of a large one, not every change: to watch it may take a fifth of a CPU.
        """
        job = self._home.job(job_id)
        watcher = Watcher()
        watcher.watch(job.control)
        try:
            while True:
                began = time.monotonic()
                workflow = job.workflow()
                yield workflow
                status = job_status(workflow)
                if status.terminal or status.state == HALTED:
                    return
                time.sleep(min(MOST_PAUSE, PAUSE * (time.monotonic() - began)))
                while not watcher.wait(HALT_LOOK):
                    revive(self._home)
        finally:
            watcher.close()

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

        job = self._home.job(job_id)
        wanted = Selection(learner=learner, step=step, attempt=attempt, tail=tail, since=since)
        return logs.follow(job, wanted, lambda: revive(self._home)) if follow else logs.read(job, wanted)

    def metrics(self, job_id: str, follow: bool = False) -> Iterator[dict[str, Any]]:
        from . import logs

        return logs.metrics(self._home.job(job_id), follow)

    def events(self, job_id: str) -> Sequence[Event]:
        from . import logs

        return logs.events(self._home.job(job_id).workflow())

    def halt(self, job_id: str, wait: bool = True, timeout: float | None = None) -> None:
        job = self._home.job(job_id)
        with job.edit() as workflow:
            _refuse_finished(workflow, "halt")
            workflow["spec"]["suspend"] = True
        revive(self._home)
        if wait:
            self.until_halted(job_id, timeout)

    def until_halted(self, job_id: str, timeout: float | None = None) -> None:
        job = self._home.job(job_id)
        unheard = False
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            for status in self.watch(job_id, HALT_LOOK):
                if status.terminal or (status.state == HALTED and _rests(job, status)):
                    return
            if not job.workflow()["spec"].get("suspend"):
                raise EngineError(f"{job_id} was resumed meanwhile: it is not halted")
            if unheard and (alone := _members_without_helper(job.workflow())):
                for pod in alone:
                    _request(job, {"kind": contract.REQUEST_DELETE_POD, "pod": pod})
            unheard = bool(_members_without_helper(job.workflow()))
            if deadline is not None and time.monotonic() > deadline:
                raise EngineError(f"{job_id} is not halted yet; it goes on halting, `ffdl status {job_id}` tells when")

    def resume(self, job_id: str) -> None:
        job = self._home.job(job_id)
        with job.edit() as workflow:
            _refuse_finished(workflow, "resume")
            workflow["spec"].pop("suspend", None)
            if not is_training_job(workflow) and plain.waiting(workflow):
                self._let_go(job, workflow, {})
            self._want_runner(job)
        revive(self._home)

    def resume_node(
        self, job_id: str, node: str | None, outputs: Mapping[str, str] | None = None, failure: str | None = None
    ) -> str:
        """Lets one suspended node of a Workflow go on, with `outputs`, or fail for the reason `failure`.

        `node` is its name, path or id; None means the only one that waits. Returns its path. Raises Refused.
        """
        job = self._home.job(job_id)
        with job.edit() as workflow:
            _refuse_finished(workflow, "resume")
            found = plain.the_waiting(workflow, node)
            request: dict[str, Any] = {"selector": f"id={found['id']}", "outputs": dict(outputs or {})}
            if failure is not None:
                request |= {"phase": "Failed", "message": failure}
            self._let_go(job, workflow, request)
            self._want_runner(job)
        revive(self._home)
        return node_path(job_id, found)

    @staticmethod
    def _let_go(job: Job, workflow: dict[str, Any], request: dict[str, Any]) -> None:
        """Asks the runner for what has been tried on `workflow` as it is now. Raises Refused."""
        from . import operator

        try:
            operator.resume(workflow, time.time(), **request)
        except operator.NotSuspendedError as error:
            raise Refused(str(error)) from None
        _request(job, {"kind": contract.REQUEST_RESUME, **request})

    def stop(self, job_id: str) -> None:
        job = self._home.job(job_id)
        with job.edit() as workflow:
            _refuse_finished(workflow, "stop")
            halted = bool(workflow["spec"].pop("suspend", None))
            if not is_training_job(workflow):
                workflow["spec"]["shutdown"] = "Stop"
            elif halted or not _live(workflow, "checkpoint"):
                workflow["spec"]["shutdown"] = "Stop"
                workflow["metadata"]["annotations"].setdefault(contract.ANNOTATION_REASON, "stopped")
            else:
                workflow["metadata"]["annotations"][contract.ANNOTATION_STOP] = "true"
            self._want_runner(job)
        revive(self._home)

    def _want_runner(self, job: Job) -> None:
        (self._home.path / "active" / job.id).touch()

    def resubmit(self, job_id: str, new_id: str, from_checkpoint: bool = False) -> None:
        from ..resubmission import summarized
        from . import records

        old = self._home.job(job_id)
        workflow = summarized(records.again(old), job_id, from_checkpoint)
        self._check(workflow)
        job_json = records.job_file_again(old, from_checkpoint)
        spawn(self._home.create(new_id, lambda job: records.copy(old, job, workflow, job_json)))

    def delete(self, job_id: str, results: bool = False) -> None:
        from . import deletion

        deletion.delete(self._home, self._home.job(job_id), results)

    def download(self, job_id: str, what: str, folder: Path) -> Path:
        from .retrieval import download

        return download(self._home, self._home.job(job_id), what, folder)

    def serve(self) -> Iterator[Sequence[str]]:
        """Takes over every job whose runner is gone, for ever; yields the ids it took over."""
        watcher = Watcher()
        watcher.watch(self._home.path / "active")
        try:
            while True:
                if taken := revive(self._home):
                    yield taken
                watcher.wait(HALT_LOOK)
        finally:
            watcher.close()


def _summary(folder: Path | str) -> JobStatus | None:
    """What a finished job's runner has noted of it, which is only a copy: what is damaged counts as none."""
    with contextlib.suppress(Damaged, TypeError, AttributeError):
        summary = read_json(f"{folder}/summary.json")
        return None if summary is None else JobStatus.from_dict(summary)
    return None


def _read_status(job: Job) -> JobStatus:
    """One whose record is damaged is shown as failed, with what to do: it must not hide the others."""
    try:
        status = job_status(job.workflow(), job.report(), time.time())
    except (Damaged, AttributeError, KeyError, TypeError, ValueError) as error:
        what = str(error) if isinstance(error, Damaged) else "its record is damaged"
        return JobStatus(job.id, FAILED, job.id, reason=f"{what}; `ffdl delete {job.id}` removes the job")
    return replace(status, reason="is being deleted") if job.deleting.exists() else status


def _refuse_finished(workflow: dict[str, Any], verb: str) -> None:
    phase = workflow["status"].get("phase")
    if phase in TERMINAL:
        name = workflow["metadata"]["name"]
        ended = "COMPLETED" if phase == "Succeeded" else "FAILED"
        raise Refused(f"{name} is {ended}: there is nothing to {verb}; `ffdl resubmit {name}` runs it again")
    if verb != "stop" and is_being_stopped(workflow):
        raise Refused(f"{workflow['metadata']['name']} is being stopped: there is nothing to {verb}")


def _rests(job: Job, status: JobStatus) -> bool:
    """A runner that had not yet seen the halt may still start a pod; a training job's would be told to end."""
    return status.kind == TRAINING_JOB or not job.has_runner()


def _live(workflow: dict[str, Any], template: str) -> list[str]:
    """Pod names of a template's nodes that are Pending or Running."""
    from .operator.names import pod_name

    return [
        pod_name(workflow["metadata"]["name"], node)
        for node in workflow["status"].get("nodes", {}).values()
        if node.get("type") == "Pod"
        and node.get("templateName") == template
        and node.get("phase") in ("Pending", "Running")
    ]


def _members_without_helper(workflow: dict[str, Any]) -> list[str]:
    """Members that nobody tells of the halt: the helper is gone, and Argo starts none while suspended."""
    if not is_training_job(workflow):
        return []
    return [] if _live(workflow, "checkpoint") else [pod for role in contract.MEMBERS for pod in _live(workflow, role)]


def _request(job: Job, request: dict[str, Any]) -> None:
    name = f"{time.time_ns()}-{os.getpid()}.json"
    contract.atomic_write(str(job.control / contract.CONTROL_REQUESTS / name), json.dumps(request).encode())
