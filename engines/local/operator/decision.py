"""What a pass of the controller asks of the one who runs it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PodRequest:
    """A pod to start, once, under `pod_name`.

    `template` is the container template, every reference resolved, with what the Workflow adds to it: `volumes` (those
    that its containers mount; claim templates are claims by now), `serviceAccountName`,
    `automountServiceAccountToken`, and `podSpecPatch` as a mapping. `wants_result`: something refers to the pod's
    `outputs.result`, so that the next passes are to be told what its main container wrote (`PodObservation.result`).
    `active_deadline`: seconds after its start at which the pod is ended and has failed. `deadline`: unix time at which
    its main containers are ended, and whatever comes of it counts.
    """

    node_id: str
    pod_name: str
    template: dict[str, Any]
    wants_result: bool = False
    active_deadline: int | None = None
    deadline: float | None = None


@dataclass(frozen=True)
class Resource:
    """An object to `action` (apply, create). Its end is told to the next pass as that of a pod named `pod_name`."""

    node_id: str
    pod_name: str
    manifest: str
    action: str


@dataclass(frozen=True)
class Decision:
    """The Workflow's new status, and what is to be done once it is written.

    `start` and `resources` repeat what was not done before; `terminate` names pods that live but have no business to;
    `wake` is the unix time of the next pass that no pod's end will call for, None if there is none.
    """

    status: dict[str, Any]
    start: list[PodRequest] = field(default_factory=list)
    terminate: list[str] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    wake: float | None = None
