"""The process that drives one job: observe its pods, reconcile, write the status, start and end pods, until it rests.

`kill -9` at any moment loses nothing: what it decided is in status.json before it acts, and acting twice does no harm.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from ...learner import contract
from ..base import EngineError
from ..nodes import is_training_job
from . import leases, operator, pods, supervisor
from .notify import Watcher
from .objects import CannotStartError
from .operator.names import pod_name
from .pod import PodObservation, PodSpec
from .runners import TERMINAL
from .state import NO_ROOM, Home, Job, locked, read_json, try_lock, write_json

SETTINGS = ("FFDL_ISOLATION", "FFDL_CGROUP")
LOOK_AGAIN = 1.0  # with pods alive: progress, and supervisors that died without a word
QUEUE_LOOK_AGAIN = 5.0


class Runner:
    """Drives `job`. `lock` is the descriptor that holds its runner lock; `run` closes it."""

    def __init__(self, home: Home, job: Job, lock: int) -> None:
        self._home, self._job, self._lock = home, job, lock
        self._watcher = Watcher()
        self._watcher.watch(job.path)
        self._watcher.watch(job.control)
        self._watcher.watch(job.control / contract.CONTROL_REQUESTS)
        self._environment = read_json(job.path / "environment.json")
        for name in SETTINGS:  # the submitter's, whoever started this runner
            os.environ.pop(name, None)
            if name in self._environment["env"]:
                os.environ[name] = self._environment["env"][name]
        self._lease = leases.held(home, job)
        self._written: dict[str, Any] | None = None
        self._ended: dict[str, PodObservation] = {}
        self._results: dict[str, PodObservation] = {}  # of resources, which have no process

    def run(self) -> None:
        """Returns when the job is finished, halted or being deleted."""
        while not self._job.deleting.exists():
            try:
                self._serve_requests()
                wait = self._advance(self._job.workflow())
                if wait is None:
                    if self._rest():
                        return
                    continue
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                wait = LOOK_AGAIN  # the disk is full: what could not be written down has not been done
            self._watcher.wait(wait)

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
        observed = self._observe(workflow["status"])
        decision = operator.reconcile(workflow, observed, time.time())
        self._write(decision.status)
        for name in decision.terminate:
            self._terminate(name)
        for resource in decision.resources:
            self._apply(resource)
        waiting = self._start(workflow, decision)
        live = [name for name, seen in observed.items() if not seen.ended]
        if decision.status.get("phase") in TERMINAL:
            return None
        if len(decision.start) > waiting or decision.resources:
            return 0.0
        if spec.get("suspend") and not live:
            return None
        due = [LOOK_AGAIN if live or waiting else 60.0]
        if decision.wake is not None:
            due.append(max(0.0, decision.wake - time.time()))
        return min(due)

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
        if status != self._written:
            self._job.write_status(status)
            self._written = status

    def _observe(self, status: dict[str, Any]) -> dict[str, PodObservation]:
        observed = dict(self._results)
        for node in status.get("nodes", {}).values():
            if node.get("type") != "Pod" or node.get("phase") in (*TERMINAL, "Omitted", "Skipped"):
                continue
            name = pod_name(self._job.id, node)
            seen = self._ended.get(name) or supervisor.observe(self._job.pods / name)
            if seen is not None:
                observed[name] = seen
                if seen.ended:
                    self._ended[name] = seen
                    self._watcher.forget(self._job.pods / name)
        return observed

    def _start(self, workflow: dict[str, Any], decision: operator.Decision) -> int:
        """Starts what was decided. Returns how many pods have to wait for something that isn't there."""
        waiting = 0
        for request in decision.start:
            folder = self._job.pods / request.pod_name
            if not (folder / "pod.json").exists():
                try:
                    spec = self._pod(workflow, request)
                except CannotStartError as reason:
                    waiting += 1
                    self._explain(request.node_id, str(reason))
                    continue
                folder.mkdir(mode=0o700, exist_ok=True)
                contract.atomic_write(str(folder / "pod.json"), spec.to_json().encode(), 0o600)
            self._watcher.watch(folder)
            supervisor.launch(folder)
        return waiting

    def _explain(self, node_id: str, reason: str) -> None:
        """A pod that can't start is Pending, with the reason as its node's message."""
        status = json.loads(json.dumps(self._written))
        if status["nodes"][node_id].get("message") != reason:
            status["nodes"][node_id]["message"] = reason
            self._write(status)

    def _pod(self, workflow: dict[str, Any], request: operator.PodRequest) -> PodSpec:
        lease = self._lease
        assert lease is not None, "a pod starts only under a lease"
        patch = request.template.get("podSpecPatch") or {}
        hostname, subdomain = str(patch.get("hostname") or request.pod_name), str(patch.get("subdomain") or "")
        address = self._address(lease, hostname, subdomain)
        plain = not is_training_job(workflow)
        return pods.build(self._home, self._job, request, address, lease, self._environment, plain=plain)

    def _address(self, lease: leases.Lease, hostname: str, subdomain: str) -> str:
        """The pod's own address in the job's piece of 127.0.0.0/8; a host name keeps its over attempts."""
        book = self._job.path / "addresses.json"
        known: dict[str, str] = read_json(book) or {}
        base = int(ipaddress.IPv4Address("127.0.0.0")) + lease.subnet * 4096
        if hostname not in known or int(ipaddress.IPv4Address(known[hostname])) - base not in range(4096):
            known = {name: a for name, a in known.items() if int(ipaddress.IPv4Address(a)) - base in range(4096)}
            taken = set(known.values())
            known[hostname] = next(
                a for n in range(2, 4096) if (a := str(ipaddress.IPv4Address(base + n))) not in taken
            )
            write_json(book, known)
        names = f"{hostname}.{subdomain} {hostname}" if subdomain else hostname
        self._hosts(f"{known[hostname]}\t{names}\n")
        return known[hostname]

    def _hosts(self, line: str) -> None:
        """Adds to the job's /etc/hosts, in place: running pods have this very file bound."""
        path = self._job.path / "hosts"
        own = path.read_text() if path.exists() else Path("/etc/hosts").read_text().rstrip("\n") + "\n"
        name = line.split("\t")[1].split()[0]
        kept = [old for old in own.splitlines(keepends=True) if name not in old.split()[1:]]
        text = "".join(kept) + line
        if text != own or not path.exists():
            with open(path, "r+" if path.exists() else "w") as stream:
                stream.write(text)
                stream.truncate()
            path.chmod(0o644)

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
                    self._write(operator.resume(self._job.workflow(), time.time(), **request))
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
