"""The helper's view of its own Workflow on a cluster: watched by threads, so that looking at it never waits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..learner import contract
from ..learner.waiting import pod_message
from . import journal
from .kube import Kube, KubeError, Object, patiently
from .mirror import STREAM, Mirror
from .outbox import Outbox
from .pods import Pod, pod_of, with_pods
from .view import Snapshot, snapshot
from .watch import Bell

WORKFLOWS, PODS, CONFIG_MAPS, EVENTS = "workflows", "pods", "configmaps", "events"
EPOCH = "ffdl.org/epoch"  # annotation of the ConfigMap <job>-status: the highest epoch taken
REPORT = "report"  # key of its data
START_PATIENCE = 60.0  # seconds without an API server before a helper gives up, to be started again
FRESH_PATIENCE = 3.0
FLUSH = 20.0  # seconds that a helper's end waits for what is still to be written
REPORTED = 10.0  # seconds between two reports of the same phase
CHORES = 5.0  # seconds between two looks at events of pods that don't say why they don't start
ASKED = 5  # of them, at one look
EPOCH_SEEN = 30.0  # seconds after which the highest epoch is asked for again
OVERDUE = 30.0  # seconds beyond its grace after which a pod that was asked to end counts as one of a lost node


@dataclass(frozen=True)
class Kept:
    """What is kept of the Workflow object, which may be large."""

    uid: str
    seen: Snapshot


def kept(workflow: Object) -> Kept:
    return Kept(str(workflow["metadata"].get("uid", "")), snapshot(workflow, workflow.get("status") or {}))


class ClusterView:
    """The Workflow `job_id`, through `kube`. Raises KubeError, after START_PATIENCE, where it can't be seen at all."""

    def __init__(
        self, kube: Kube, job_id: str, journal_dir: str, patience: float = START_PATIENCE, stream: float = STREAM
    ) -> None:
        self.watch = Bell()
        self._kube, self._job_id, self._journal_dir = kube, job_id, journal_dir
        self._status = f"{job_id}-status"
        ring = self.watch.ring
        self._workflow = Mirror(kube, WORKFLOWS, kept, ring, fields=f"metadata.name={job_id}", stream=stream)
        label = f"{contract.LABEL_JOB}={job_id}"
        self._pods = Mirror(kube, PODS, pod_of, ring, labels=label, stream=stream)
        self._outbox = Outbox(self._chores, CHORES)
        self._silent: set[str] = set()  # uids of pods that say nothing, at the last look
        self._said: dict[str, str] = {}  # what the events of a pod say, by its uid; replaced as a whole
        self._ending: dict[str, float] = {}  # uid of a pod that was asked to end -> since when
        self._epoch = self._own_epoch = 0
        self._epoch_seen = self._reported = float("-inf")
        self._version = ""  # of the ConfigMap
        self._report: dict[str, Any] = {}
        self._message = ""
        try:
            self._begin(patience)
        except BaseException:
            self.close()
            raise

    def _begin(self, patience: float) -> None:
        end = time.monotonic() + patience
        self._last = patiently(lambda: kept(self._kube.get(WORKFLOWS, self._job_id)), patience)
        for mirror in (self._workflow, self._pods):
            mirror.start()
        for mirror in (self._workflow, self._pods):
            if not mirror.synced.wait(max(0.0, end - time.monotonic())):
                raise KubeError(0, mirror.failure or "the API server does not answer")

    # --- epochs ---------------------------------------------------------------------------------------------------

    def take_epoch(self) -> int:
        self._own_epoch = patiently(self._take_next, START_PATIENCE)
        self._outbox.start()
        return self._own_epoch

    def _take_next(self) -> int:
        there = self._config_map()
        number = self.epoch() + 1
        self._note(self._take(number, there))  # a conflict: another helper was quicker
        return number

    def epoch(self) -> int:
        """Others' epochs are heard of with each report, and by the journals that they begin on the job's volume."""
        return max(self._epoch, journal.highest(self._journal_dir))

    def _take(self, number: int, there: bool) -> Object:
        about: Object = {"annotations": {EPOCH: str(number)}}
        if there:
            about["resourceVersion"] = self._version
            return self._kube.patch(CONFIG_MAPS, self._status, {"metadata": about})
        owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": self._job_id, "uid": self._last.uid}
        labels = {contract.LABEL_JOB: self._job_id, contract.LABEL_REPORT: "true"}
        about |= {"name": self._status, "labels": labels, "ownerReferences": [owner]}
        return self._kube.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})

    def _config_map(self) -> bool:
        """Looks at it. Whether it is there."""
        try:
            self._note(self._kube.get(CONFIG_MAPS, self._status))
        except KubeError as error:
            if error.status != 404:
                raise
            self._version = ""
            return False
        return True

    def _note(self, config_map: Object) -> None:
        about = config_map["metadata"]
        self._version = str(about.get("resourceVersion") or "")
        text = str((about.get("annotations") or {}).get(EPOCH, ""))
        self._epoch = max(self._epoch, int(text) if text.isdecimal() else 0)
        self._epoch_seen = time.monotonic()

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, fresh: bool = False) -> Snapshot:
        for thread in (self._workflow, self._pods):
            if not thread.is_alive():
                raise RuntimeError(f"the thread {thread.name} has ended")
        pods = self._pods.items
        self._last = self._workflow.items.get(self._job_id, self._last)  # deleted: this pod will hear of it
        if fresh:
            self._last, pods = self._now(self._last, pods)
        return with_pods(self._last.seen, pods.values(), self._said, self._overdue(pods, time.monotonic()))

    def _now(self, last: Kept, pods: dict[str, Pod]) -> tuple[Kept, dict[str, Pod]]:
        """Asks the API server; where it does not answer, what was last heard has to do."""
        try:
            last = patiently(lambda: kept(self._kube.get(WORKFLOWS, self._job_id)), FRESH_PATIENCE)
            pods = patiently(lambda: {pod.name: pod for pod in self._list_pods()}, FRESH_PATIENCE)
        except KubeError:
            pass
        return last, pods

    def _list_pods(self) -> Iterator[Pod]:
        return map(pod_of, self._kube.list(PODS, f"{contract.LABEL_JOB}={self._job_id}"))

    def _overdue(self, pods: dict[str, Pod], now: float) -> list[str]:
        asked = {pod.uid: pod.grace for pod in pods.values() if pod.grace is not None}
        self._ending = {uid: self._ending.get(uid, now) for uid in asked}
        return [uid for uid, since in self._ending.items() if now - since > (asked[uid] or 0) + OVERDUE]

    # --- writing --------------------------------------------------------------------------------------------------

    def annotate(self, annotations: dict[str, str]) -> None:
        body = {"metadata": {"annotations": annotations}}
        name = f"annotation {', '.join(annotations)}"
        self._outbox.put(name, partial(self._kube.patch, WORKFLOWS, self._job_id, body))

    def stop(self, annotations: dict[str, str]) -> None:
        body = {"metadata": {"annotations": annotations}, "spec": {"shutdown": "Stop"}}
        self._outbox.put("stop", partial(self._kube.patch, WORKFLOWS, self._job_id, body))

    def delete_pod(self, name: str, force: bool = False) -> None:
        pod = self._pods.items.get(name)
        grace = 0 if force else None
        self._outbox.put(
            f"deletion of {name}" + (" by force" if force else ""),
            partial(self._kube.delete, PODS, name, grace, pod.uid if pod else ""),
        )

    def report(self, report: dict[str, Any]) -> None:
        """At once where the job's phase has changed, else now and then: each is a write to the cluster's database."""
        now = time.monotonic()
        changed = report.get("message") != self._message
        self._report, self._message = report, str(report.get("message"))
        self._outbox.put(REPORT, self._write_report, 0.0 if changed else max(0.0, self._reported + REPORTED - now))

    def _write_report(self) -> None:
        if self.epoch() > self._own_epoch:
            return
        self._reported = time.monotonic()
        text = json.dumps(self._report)
        body = {"metadata": {"resourceVersion": self._version}, "data": {REPORT: text}}
        try:
            self._note(self._kube.patch(CONFIG_MAPS, self._status, body))
        except KubeError as error:
            if error.status == 409:
                self._config_map()  # written by another helper, it may be
            elif error.status == 404:
                self._note(self._take(self._own_epoch, there=False))
            else:
                raise
            raise KubeError(0, "the report's place has changed") from None  # once more

    def close(self) -> None:
        if self._outbox.is_alive() and self.epoch() == self._own_epoch:
            self._outbox.flush(FLUSH)
        self._outbox.close()
        for mirror in (self._workflow, self._pods):
            mirror.stop()
        self._kube.close()
        for thread in (self._workflow, self._pods, self._outbox):
            if thread.is_alive():
                thread.join(1.0)
        self.watch.close()

    # --- now and then ---------------------------------------------------------------------------------------------

    def _chores(self) -> None:
        if time.monotonic() - self._epoch_seen > EPOCH_SEEN:
            self._config_map()
        silent = {pod.uid for pod in self._pods.items.values() if pod.silent}
        asked = sorted(silent & self._silent)[:ASKED]
        said = {uid: self._events_of(uid) for uid in asked}
        self._silent = silent
        if said != self._said:
            self._said = said
            self.watch.ring()

    def _events_of(self, uid: str) -> str:
        """What keeps volumes from being mounted is told by events alone."""
        return pod_message({"metadata": {"uid": uid}}, self._kube.list(EVENTS, fields=f"involvedObject.uid={uid}"))
