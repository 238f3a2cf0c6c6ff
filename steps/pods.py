"""What the pods of a job say of it that its Workflow object does not, or says later. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..learner import contract
from ..learner.waiting import STARTING, judge, pod_message
from .view import BEFORE_LEARNING, Snapshot, member_in

MAIN = "main"  # the container that Argo runs a template's command in
NODE_NAME = "workflows.argoproj.io/node-name"  # Argo's annotation
HELPER_ROLE = "checkpoint"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Pod:
    """A pod, as far as the helper cares. `works`: its command runs. `grace`: seconds it has to end, None: not asked to.
    `member`: the number of the learner or parameter server in it.

    `message`: why it has not started, as far as the pod itself knows.
    """

    name: str
    uid: str
    role: str
    member: int | None = None
    phase: str = "Pending"
    works: bool = False
    grace: int | None = None
    message: str = ""

    @property
    def starting(self) -> bool:
        """It has not begun and will, as things stand."""
        of_the_job = self.role in contract.MEMBERS or self.role in BEFORE_LEARNING
        return of_the_job and self.phase == "Pending" and self.grace is None

    @property
    def silent(self) -> bool:
        """It does not start and does not say why: its events may."""
        return self.starting and judge(self.message) == STARTING

    @property
    def writes(self) -> bool:
        """It is a member of the job or its helper and may still write to the job's volume."""
        return self.role in (*contract.MEMBERS, HELPER_ROLE) and (self.works or self.phase == "Pending")


def pod_of(found: Mapping[str, Any]) -> Pod:
    """What is kept of a pod object."""
    about, status = found.get("metadata") or {}, found.get("status") or {}
    node = str((about.get("annotations") or {}).get(NODE_NAME, ""))
    role = str((about.get("labels") or {}).get(contract.LABEL_ROLE, ""))
    grace = int(about.get("deletionGracePeriodSeconds") or 0) if about.get("deletionTimestamp") else None
    phase = str(status.get("phase") or "Pending")
    return Pod(
        name=str(about.get("name", "")),
        uid=str(about.get("uid", "")),
        role=role,
        member=member_in(node) if role in contract.MEMBERS else None,
        phase=phase,
        works=phase not in ("Pending", *_ENDED) and not _has_ended(status),
        grace=grace,
        message=pod_message(found),
    )


def _has_ended(status: Mapping[str, Any]) -> bool:
    main: Mapping[str, Any] = next((c for c in status.get("containerStatuses") or () if c.get("name") == MAIN), {})
    return "terminated" in (main.get("state") or {})


def with_pods(
    snapshot: Snapshot, pods: Iterable[Pod], said: Mapping[str, str], overdue: Iterable[str] = ()
) -> Snapshot:
    """`snapshot`, of the Workflow alone, corrected by what its pods say.

    `said`: what their events say, by uid; `overdue`: uids of pods that should have ended.
    """
    pods = list(pods)
    there = {pod.name for pod in pods}
    late = set(overdue)
    pending = {name: message for name, message in snapshot.pending.items() if name not in there}
    for pod in pods:
        if pod.starting:
            own = said.get(pod.uid, "") if pod.silent else pod.message
            pending[pod.name] = own if judge(own) != STARTING else snapshot.pending.get(pod.name, "")
    return replace(
        snapshot,
        known=snapshot.known or bool(pods),
        active=frozenset(pod.member for pod in pods if pod.works and pod.member is not None),
        busy=any(pod.works and pod.role == "download" for pod in pods),
        pending=pending,
        starting=frozenset(pod.name for pod in pods if pod.starting),
        overdue=tuple((pod.name, pod.member) for pod in pods if pod.uid in late),
    )
