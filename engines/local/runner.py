"""The process that drives one job: observe its pods, reconcile, write the status, start and end pods, until it rests.

`kill -9` at any moment loses nothing: what it decided is in status.json before it acts, and acting twice does no harm.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...learner import contract
from ..base import EngineError
from ..nodes import is_training_job
from . import cgroup, leases, operator, pods, sandbox, supervisor
from .addresses import Addresses
from .livepods import LOOK_AGAIN, LivePods
from .notify import Watcher
from .objects import CannotStartError
from .operator.names import pod_name
from .pod import PodObservation, PodSpec
from .podfiles import PodFiles
from .runners import TERMINAL
from .shares import NoRoomError, Shares
from .state import NO_ROOM, Home, Job, locked, read_json, try_lock, write_json
from .statusfile import StatusFile

SETTINGS = (sandbox.SWITCH_ENV, cgroup.SWITCH_ENV)
QUEUE_LOOK_AGAIN = 5.0
MOST_PODS = 110  # at once, of a Workflow that is no training job
IDLE_LOOK_AGAIN = 60.0
LAUNCHING = 0.2  # seconds after which what has ended meanwhile is looked at
QUICK = 0.02  # seconds of a pass that is not worth waiting for
MOST_GATHERING = 0.1  # seconds that news may wait for more of it
SETTLING = 0.02  # seconds in which a pod that has begun to run may end, too


class Runner:
    """Drives `job`. `lock` is the descriptor that holds its runner lock; `run` closes it."""

    def __init__(self, home: Home, job: Job, lock: int) -> None:
        self._home, self._job, self._lock = home, job, lock
        self._watcher = Watcher()
        self._watcher.watch(job.path, job.deleting.name)
        self._watcher.watch(job.control, contract.CONTROL_WORKFLOW)
        self._watcher.watch(job.control / contract.CONTROL_REQUESTS)
        self._environment = read_json(job.path / "environment.json")
        settings = self._environment["env"]
        if "isolation" in self._environment:  # not in a job of an older version
            settings = settings | {sandbox.SWITCH_ENV: self._environment["isolation"]}
        for name in SETTINGS:  # the submitter's, whoever started this runner
            os.environ.pop(name, None)
            if name in settings:
                os.environ[name] = settings[name]
        self._lease = leases.held(home, job)
        self._source: dict[str, Any] = {}  # the Workflow without its status
        self._source_file: tuple[int, ...] = ()
        self._status: dict[str, Any] = job.workflow()["status"]  # as it stands in the file: nobody else writes it
        self._status_file = StatusFile(job.control / contract.CONTROL_STATUS)
        self._memory = operator.Memory()
        self._addresses = Addresses(job.path / "addresses.json", job.path / "hosts")
        self._pods = LivePods(job.pods, self._watcher)
        self._results: dict[str, PodObservation] = {}  # of resources, which have no process
        self._terminated: set[str] = set()
        nodes = (self._status.get("nodes") or {}).values()
        live = {pod_name(job.id, node) for node in nodes if node["type"] == "Pod" and not operator.ended(node)}
        for name in live:
            self._pods.add(name)
        self._shares = Shares(home, job, live)

    def run(self) -> None:
        """Returns when the job is finished, halted or being deleted."""
        while not self._job.deleting.exists():
            begun = time.monotonic()
            try:
                self._serve_requests()
                wait = self._advance(self._workflow())
                if wait is None:
                    if self._rest():
                        return
                    continue
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                wait = LOOK_AGAIN  # the disk is full: what could not be written down has not been done
            took = time.monotonic() - begun
            if self._watcher.wait(wait) and wait > 0:
                self._gather(took)

    def _gather(self, took: float) -> None:
        """Lets news wait for more of it, if the pass that `took` so many seconds is better done for all at once."""
        if took > QUICK:
            time.sleep(min(took / 2, MOST_GATHERING))
            self._watcher.wait(0)
        deadline = time.monotonic() + SETTLING
        while self._pods.may_wait(self._watcher.news()) and (left := deadline - time.monotonic()) > 0:
            self._watcher.wait(left)

    def _workflow(self) -> dict[str, Any]:
        """The Workflow, its status as this runner knows it. Raises NoSuchJob, Damaged."""
        path = self._job.control / contract.CONTROL_WORKFLOW
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(path)
            known = (found.st_ino, found.st_mtime_ns, found.st_size)
            if known == self._source_file:
                return {**self._source, "status": self._status}
            self._source_file = known
        self._source = _bounded(self._job.workflow())
        return {**self._source, "status": self._status}

    def _advance(self, workflow: dict[str, Any]) -> float | None:
        """One pass. Returns how long nothing can happen by itself, None if the job has come to rest."""
        status = workflow["status"]
        if status.get("phase") in TERMINAL:
            return None
        spec = workflow["spec"]
        if self._lease is None and not spec.get("suspend"):
            reason = self._queue(workflow)
            if reason is not None:
                self._write({**status, "phase": status.get("phase") or "Pending", "message": f"queued: {reason}"})
                return QUEUE_LOOK_AGAIN
        if str(status.get("message", "")).startswith("queued: "):
            workflow["status"] = {key: value for key, value in status.items() if key != "message"}
        observed = {**self._pods.observe(), **self._results}
        decision = operator.reconcile(workflow, observed, time.time(), self._memory)
        self._write(decision.status)
        self._forget([name for name, seen in observed.items() if seen.ended], workflow)
        for name in decision.terminate:
            if name not in self._terminated:
                self._terminated.add(name)
                self._terminate(name)
        for resource in decision.resources:
            self._apply(resource)
        live = any(not seen.ended for seen in observed.values())
        more = self._start(workflow, decision)
        if decision.status.get("phase") in TERMINAL:
            return None
        if decision.resources or more:
            return 0.0
        if spec.get("suspend") and not live:
            return None
        due = [LOOK_AGAIN if live or decision.start else IDLE_LOOK_AGAIN]
        if decision.wake is not None:
            due.append(max(0.0, decision.wake - time.time()))
        return min(due)

    def _forget(self, ended: list[str], workflow: dict[str, Any]) -> None:
        """Pods whose end is written down."""
        self._pods.forget(ended)
        self._terminated.difference_update(ended)
        self._shares.release(ended)
        for name in ended:
            self._results.pop(name, None)
            if not is_training_job(workflow):  # whose pods are called the same at each attempt
                self._addresses.forget(name)

    def _queue(self, workflow: dict[str, Any]) -> str | None:
        self._watcher.watch(self._home.path / "leases")
        capacity = leases.Capacity.of_this_machine()
        # a job that is to end only needs room for its exit handler, which rides along
        wanted = leases.Demand() if workflow["spec"].get("shutdown") else leases.demand(workflow)
        got = leases.acquire(self._home, self._job, wanted, capacity)
        if isinstance(got, str):
            return got
        self._lease = got
        self._watcher.forget(self._home.path / "leases")
        return None

    def _write(self, status: dict[str, Any]) -> None:
        if status != self._status:
            self._status_file.write(status)
        self._status = status

    def _start(self, workflow: dict[str, Any], decision: operator.Decision) -> bool:
        """Starts what was decided, but for pods that have to wait for something that isn't there.

        After a while it leaves the others for the next pass: whether there are any.
        """
        deadline = time.monotonic() + LAUNCHING
        for number, request in enumerate(decision.start):
            if number and time.monotonic() > deadline:
                return True
            folder = self._job.pods / request.pod_name
            if not (folder / "pod.json").exists():
                try:
                    spec = self._pod(workflow, request)
                except (CannotStartError, NoRoomError) as reason:
                    self._explain(request.node_id, str(reason))
                    continue
                folder.mkdir(mode=0o700, exist_ok=True)
                PodFiles(folder).write_spec(spec)
            self._pods.add(request.pod_name)
            supervisor.launch(folder)
        self._shares.settle()
        return False

    def _explain(self, node_id: str, reason: str) -> None:
        """A pod that can't start is Pending, with the reason as its node's message."""
        nodes = self._status["nodes"]
        if nodes[node_id].get("message") != reason:
            self._write({**self._status, "nodes": {**nodes, node_id: {**nodes[node_id], "message": reason}}})

    def _pod(self, workflow: dict[str, Any], request: operator.PodRequest) -> PodSpec:
        lease = self._lease
        assert lease is not None, "a pod starts only under a lease"
        plain = not is_training_job(workflow)
        if plain:
            lease = replace(lease, gpus=self._shares.take(request.pod_name, request.template))
        patch = request.template.get("podSpecPatch") or {}
        hostname, subdomain = str(patch.get("hostname") or request.pod_name), str(patch.get("subdomain") or "")
        address = self._addresses.of(hostname, subdomain, lease.subnet)
        return pods.build(self._home, self._job, request, address, lease, self._environment, plain=plain)

    def _apply(self, resource: operator.Resource) -> None:
        """Keeps the object. Names of a headless Service resolve by the hosts file already."""
        kind = "services" if "kind: Service" in resource.manifest else "others"
        folder = self._job.objects / kind
        folder.mkdir(exist_ok=True, mode=0o700)
        contract.atomic_write(str(folder / f"{resource.pod_name}.yaml"), resource.manifest.encode(), 0o600)
        now = time.time()
        self._results[resource.pod_name] = PodObservation("Succeeded", 0, started_at=now, finished_at=now)

    def _terminate(self, name: str, force: bool = False) -> None:
        folder = self._job.pods / name
        folder.mkdir(mode=0o700, exist_ok=True)  # one that never started: it never will
        self._pods.add(name)
        supervisor.terminate(folder, force)

    def _serve_requests(self) -> None:
        """What helper and commands asked for, oldest first; each is removed once done."""
        folder = self._job.control / contract.CONTROL_REQUESTS
        for path in sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime_ns):
            try:
                request = json.loads(path.read_bytes())
                if request["kind"] in (contract.REQUEST_ANNOTATE, contract.REQUEST_STOP):
                    with self._job.edit() as workflow:
                        if request["kind"] == contract.REQUEST_STOP:
                            workflow["spec"]["shutdown"] = "Stop"
                        workflow["metadata"].setdefault("annotations", {}).update(request["annotations"])
                elif request["kind"] == contract.REQUEST_RESUME:
                    del request["kind"]
                    self._write(operator.resume(self._workflow(), time.time(), **request))
                elif request["kind"] == contract.REQUEST_DELETE_POD and "/" not in request["pod"]:
                    self._terminate(request["pod"], bool(request.get("force")))
                else:
                    print(f"unknown request {request!r}", file=sys.stderr)
            except (ValueError, KeyError, TypeError) as error:
                print(f"{path.name} is no request: {error!r}", file=sys.stderr)
            path.unlink(missing_ok=True)

    def _rest(self) -> bool:
        """Ends the runner's work, unless there is more of it. Decided under the lock that `resume` takes too."""
        with locked(self._job.path / "lock"):
            workflow = self._job.workflow()
            finished = workflow["status"].get("phase") in TERMINAL
            if not finished and not workflow["spec"].get("suspend"):
                return False
            if finished:
                self._conclude(workflow)
            leases.release(self._home, self._job)
            self._lease = None
            (self._home.path / "active" / self._job.id).unlink(missing_ok=True)
            os.close(self._lock)
            return True

    def _conclude(self, workflow: dict[str, Any]) -> None:
        """A finished job keeps its logs and its record; its volume goes as `volumeClaimGC` says."""
        from ..status import job_status

        for folder in self._job.pods.iterdir():
            supervisor.cleanup(folder)
            shutil.rmtree(folder / "volumes", ignore_errors=True)
        strategy = workflow["spec"].get("volumeClaimGC", {}).get("strategy", "OnWorkflowSuccess")
        if strategy == "OnWorkflowCompletion" or workflow["status"]["phase"] == "Succeeded":
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                os.rename(self._job.volume() / "job" / "logs", self._job.path / "logs")
            shutil.rmtree(self._job.path / "claims", ignore_errors=True)
        summary = job_status(workflow, self._job.report(), time.time())
        write_json(self._job.path / "summary.json", summary.to_dict())


def _bounded(workflow: dict[str, Any]) -> dict[str, Any]:
    """A Workflow that is no training job has no more pods at once than a node of a cluster takes."""
    if is_training_job(workflow):
        return workflow
    most = min(int(workflow["spec"].get("parallelism") or MOST_PODS), MOST_PODS)
    return {**workflow, "spec": {**workflow["spec"], "parallelism": most}}


def main(home_path: str, job_id: str) -> int:
    """Runs the job unless someone does already."""
    home = Home(Path(home_path))
    job = Job(home, job_id)
    lock = try_lock(job.runner_lock) if job.path.is_dir() else None
    if lock is None:
        return 0
    ctypes.CDLL(None).prctl(15, b"ffdl-runner", 0, 0, 0)
    try:
        if job.deleting.exists():
            from . import deletion

            deletion.carry_out(home, job)
        else:
            Runner(home, job, lock).run()
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
