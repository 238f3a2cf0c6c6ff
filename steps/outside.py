"""The exit step's view of its Workflow, in a form for each engine: who still writes, and why the job failed."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..learner import contract
from . import step

if TYPE_CHECKING:
    from .kube import Kube

WRITERS = (*contract.MEMBERS, "checkpoint")  # templates of the pods that may still write
PATIENCE = 20.0  # seconds without an answer of the cluster


class Outside(Protocol):
    """`poll`: seconds between two looks."""

    poll: float

    def writers(self) -> list[str]:
        """Names of the pods that may still write to the job's volume."""

    def annotations(self) -> dict[str, Any]:
        """The Workflow's."""

    def annotate(self, annotations: dict[str, str]) -> None: ...


def workflow_of(job_id: str) -> Outside:
    control = contract.path(contract.CONTROL_DIR)
    if os.path.isdir(control):
        return ControlFolder(control)
    if not in_cluster():
        return Nowhere()
    from .kube import Kube  # it costs memory that a pod without a token need not have

    return OnCluster(Kube.of_this_pod(), job_id)


def in_cluster() -> bool:
    """Whether this pod holds a cluster's token."""
    return os.path.exists(f"{contract.path(contract.SERVICE_ACCOUNT_DIR)}/token")


class Nowhere:
    """A pod that is told nothing: the step after a success needs none of it."""

    poll = 0.2

    def writers(self) -> list[str]:
        return []

    def annotations(self) -> dict[str, Any]:
        return {}

    def annotate(self, annotations: dict[str, str]) -> None:
        pass


class ControlFolder:
    """The local engine's."""

    poll = 0.2

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def writers(self) -> list[str]:
        nodes = _json(f"{self._folder}/{contract.CONTROL_STATUS}").get("nodes")
        return [
            str(node.get("displayName") or name)
            for name, node in (nodes if isinstance(nodes, dict) else {}).items()
            if node.get("type") == "Pod"
            and node.get("templateName") in WRITERS
            and node.get("phase", "Pending") in ("Pending", "Running")
        ]

    def annotations(self) -> dict[str, Any]:
        metadata = _json(f"{self._folder}/{contract.CONTROL_WORKFLOW}").get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        return annotations if isinstance(annotations, dict) else {}

    def annotate(self, annotations: dict[str, str]) -> None:
        request = {"kind": contract.REQUEST_ANNOTATE, "annotations": annotations}
        folder = f"{self._folder}/{contract.CONTROL_REQUESTS}"
        try:
            os.makedirs(folder, exist_ok=True)
            target = f"{folder}/store-results-{uuid.uuid4().hex}.json"
            contract.atomic_write(target, json.dumps(request).encode("ascii"))
        except OSError as error:
            step.complain(f"the engine can't be told: {error.strerror}")


class OnCluster:
    """The API server's."""

    poll = 1.0

    def __init__(self, kube: Kube, job_id: str) -> None:
        self._kube, self._job_id = kube, job_id

    def writers(self) -> list[str]:
        from .kube import KubeError
        from .pods import pod_of

        try:
            pods = [pod_of(pod) for pod in self._kube.list("pods", f"{contract.LABEL_JOB}={self._job_id}")]
        except KubeError as error:
            return [f"nobody knows, {error}"]
        return [pod.name for pod in pods if pod.writes]

    def annotations(self) -> dict[str, Any]:
        workflow = self._asked(lambda: self._kube.get("workflows", self._job_id))
        return (workflow.get("metadata") or {}).get("annotations") or {}

    def annotate(self, annotations: dict[str, str]) -> None:
        self._asked(lambda: self._kube.patch("workflows", self._job_id, {"metadata": {"annotations": annotations}}))

    def _asked(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Where there is no answer storing goes on without."""
        from .kube import KubeError, patiently

        try:
            return patiently(call, PATIENCE)
        except KubeError as error:
            step.complain(str(error))
            return {}


def _json(name: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError), open(name, encoding="utf-8") as stream:
        values = json.load(stream)
        if isinstance(values, dict):
            return values
    return {}
