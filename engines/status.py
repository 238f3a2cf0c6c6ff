"""A Workflow object (and its helper's report) -> JobStatus: FfDL's states, progress, reason. For every engine. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..learner import contract
from .failure import Failure, failure
from .nodes import (
    STORE_ROLES,
    NodeStatus,
    first_failure,
    is_training_job,
    one_line,
    raw_nodes,
    read_nodes,
    unix_time,
    words,
)

NOT_STARTED, QUEUED, PENDING, DOWNLOADING = "NOT_STARTED", "QUEUED", "PENDING", "DOWNLOADING"
PROCESSING, STORING, COMPLETED, FAILED, HALTED = "PROCESSING", "STORING", "COMPLETED", "FAILED", "HALTED"
STATES = (NOT_STARTED, QUEUED, PENDING, DOWNLOADING, PROCESSING, STORING, COMPLETED, FAILED, HALTED)
TERMINAL = (COMPLETED, FAILED)
TRAINING_JOB, WORKFLOW = "TrainingJob", "Workflow"  # kinds of job; the second is any other Workflow of Argo's

FRESH = 30.0  # seconds for which an ETA that has passed still counts


@dataclass(frozen=True)
class JobStatus:
    """What is known of a job. Times are unix seconds, `eta` seconds, `progress` 0 to 1; `cpus`, `gpus` and
    `memory` (bytes) are one learner's. `checkpoint` is the step of the newest that our library has committed;
    `continues` the job from whose checkpoint this one has gone on.

    `reason` is one line: why the job waits or failed; `warning` another: that its image is not what was asked for, or
    out of date. `attempts` is the most any learner has begun (1: the first),
    `restarts` how often commands were killed and started again within their last attempts.
    `error_code` and `exit_code` (the learner's own) are set for a failed job only. A `kind` of WORKFLOW has no
    learners; its nodes, which may be thousands, are left to who reads the Workflow itself.
    """

    id: str
    state: str
    name: str = ""
    framework: str = ""
    version: str = ""
    description: str = ""
    continues: str = ""
    learners: int = 1
    cpus: float | None = None
    gpus: int = 0
    memory: int | None = None
    reason: str = ""
    warning: str = ""
    error_code: str = ""
    exit_code: int | None = None
    progress: float | None = None
    step: int | None = None
    of: int | None = None
    checkpoint: int | None = None
    eta: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 1
    restarts: int = 0
    submitted: float | None = None
    started: float | None = None
    finished: float | None = None
    halting: bool = False
    kind: str = TRAINING_JOB
    nodes: Sequence[NodeStatus] = ()

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, keys in the order above."""
        values = {name: getattr(self, name) for name in _FIELDS}
        values["metrics"] = dict(self.metrics)
        values["nodes"] = [node._asdict() for node in self.nodes]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobStatus:
        """Reads `to_dict`'s form; keys it does not know (a later version's) are left out."""
        known = {name: values[name] for name in _FIELDS if name in values}
        known["nodes"] = tuple(NodeStatus.from_dict(node) for node in known.get("nodes", ()))
        return cls(**known)


_FIELDS = tuple(f.name for f in fields(JobStatus))


def job_status(
    workflow: dict[str, Any],
    report: dict[str, Any] | None = None,
    now: float | None = None,
    pods_gone: bool = False,
) -> JobStatus:
    """The status of the job that `workflow` is.

    `report` is the helper's last one: `time` (unix seconds), `progress` (N/M over all learners), `step`, `of`, `eta`
    (seconds), `metrics`, `message`. Without `now` it counts as fresh. `pods_gone`: it is known that no pod is left.
    """
    metadata, status = workflow.get("metadata", {}), workflow.get("status") or {}
    annotations = metadata.get("annotations") or {}
    if not is_training_job(workflow):
        return _workflow_status(workflow, metadata, status)
    summary = _json(annotations.get(contract.ANNOTATION_SUMMARY), {})
    nodes = read_nodes(status)
    learners = [node for node in nodes if node.learner]
    suspended = bool(workflow.get("spec", {}).get("suspend"))
    released = contract.ANNOTATION_RELEASED in annotations
    state, waiting_for = _state(status, nodes, suspended, released, pods_gone)
    failed = failure(workflow, nodes, summary) if state == FAILED else Failure()
    progress = _progress(report or {}, nodes, now)
    halting = suspended and state not in (*TERMINAL, HALTED, NOT_STARTED)
    return JobStatus(
        id=metadata.get("name", ""),
        state=state,
        name=_json(annotations.get(contract.ANNOTATION_NAME), metadata.get("name", "")),
        framework=summary.get("framework", ""),
        version=summary.get("version", ""),
        description=summary.get("description", ""),
        continues=str(summary.get("continues", "")),
        learners=summary.get("learners", max(1, len(learners))),
        cpus=summary.get("cpus"),
        gpus=summary.get("gpus", 0),
        memory=summary.get("memory"),
        reason=failed.reason or _waiting_reason(state, waiting_for, annotations, halting, report or {}),
        warning=str(summary.get("warning", "")),
        error_code=failed.code,
        exit_code=failed.exit_code,
        progress=1.0 if state == COMPLETED else progress.share,
        step=progress.step,
        of=progress.of,
        checkpoint=progress.checkpoint,
        eta=progress.eta if state == PROCESSING else None,
        metrics=progress.metrics,
        attempts=max((node.attempt for node in learners), default=1),
        restarts=progress.restarts,
        submitted=unix_time(metadata.get("creationTimestamp")),
        started=unix_time(status.get("startedAt")),
        finished=unix_time(status.get("finishedAt")) if state in TERMINAL else None,
        halting=halting,
        nodes=tuple(nodes),
    )


def _workflow_status(workflow: dict[str, Any], metadata: dict[str, Any], status: dict[str, Any]) -> JobStatus:
    """Of a Workflow that is no training job: a pod that runs is work, a suspend template's node is waited at."""
    nodes = raw_nodes(status).values()
    running = [node for node in nodes if node.get("phase") in ("Pending", "Running")]
    pods = any(node.get("type") == "Pod" for node in running)
    suspended = bool(workflow.get("spec", {}).get("suspend"))
    phase, reason, code = status.get("phase", ""), one_line(status.get("message") or ""), None
    if phase in ("Succeeded", "Failed", "Error"):
        state = COMPLETED if phase == "Succeeded" else FAILED
        stopped = bool(workflow.get("spec", {}).get("shutdown"))
        if state == FAILED and not stopped and (failed := first_failure(nodes)):
            reason, code = failed
    elif suspended and not pods:
        state = HALTED
    else:
        state = PROCESSING if nodes else PENDING
        waits = [str(node["displayName"]) for node in running if node.get("type") == "Suspend"]
        reason = f"waits at {', '.join(waits)}" if waits and not pods else reason
    return JobStatus(
        id=metadata.get("name", ""),
        state=state,
        name=metadata.get("name", ""),
        learners=0,
        reason=reason,
        exit_code=code,
        progress=1.0 if state == COMPLETED else _share(status.get("progress")),
        submitted=unix_time(metadata.get("creationTimestamp")),
        started=unix_time(status.get("startedAt")),
        finished=unix_time(status.get("finishedAt")) if state in TERMINAL else None,
        halting=suspended and state not in (*TERMINAL, HALTED),
        kind=WORKFLOW,
    )


def _json(text: str | None, default: Any) -> Any:
    """An annotation's value; a Workflow that people have edited by hand is shown all the same."""
    try:
        value = json.loads(text) if text else default
    except ValueError:
        return default
    return value if isinstance(value, type(default)) else default


def _state(
    status: dict[str, Any], nodes: list[NodeStatus], suspended: bool, released: bool, pods_gone: bool
) -> tuple[str, str]:
    """FfDL's state, and in words what a job that is not at work waits for."""
    phase, message = status.get("phase", ""), status.get("message") or ""
    if phase == "Succeeded":
        return COMPLETED, ""
    if phase in ("Failed", "Error"):
        return FAILED, ""
    if suspended and not _can_start(nodes, pods_gone):
        return (HALTED, "") if released or nodes else (NOT_STARTED, "its submission has not been completed")
    running = {node.role for node in nodes if node.phase == "Running"}
    if not running and message.startswith("queued"):
        return QUEUED, message.removeprefix("queued").lstrip(": ")
    return _state_at_work(nodes, running, message)


def _can_start(nodes: list[NodeStatus], pods_gone: bool) -> bool:
    """Whether a pod of a suspended job runs or could. Argo leaves a node Pending whose pod is deleted meanwhile."""
    return any(node.phase == "Running" if pods_gone else node.alive for node in nodes)


def _state_at_work(nodes: list[NodeStatus], running: set[str], message: str) -> tuple[str, str]:
    if any(node.role in STORE_ROLES for node in nodes):
        return STORING, ""
    if "learner" in running:
        return PROCESSING, ""
    if "download" in running:
        return DOWNLOADING, ""
    learners = [node for node in nodes if node.learner]
    download = next((node for node in nodes if node.role == "download"), None)
    failed_download = download is not None and download.phase in ("Failed", "Error")
    if failed_download or (learners and all(node.ended for node in learners)):
        return STORING, ""
    waiting = [
        node for node in nodes if node.phase in ("Pending", "Waiting") and node.role in (*contract.MEMBERS, "download")
    ]
    return PENDING, next((_pending_words(node) for node in waiting if node.message), message)


def _pending_words(node: NodeStatus) -> str:
    if node.phase == "Pending":
        return node.message
    if node.exit_code == contract.EXIT_AGAIN:
        return f"{words(node)} is to be started again"
    return f"{words(node)} starts again after: {node.message.removeprefix('main: ')}"


def _waiting_reason(
    state: str, waiting_for: str, annotations: Mapping[str, str], halting: bool, report: Mapping[str, Any]
) -> str:
    if contract.ANNOTATION_STOP in annotations and state not in TERMINAL:
        return "is being stopped"
    if halting:
        return "is halting"
    said = str(report.get("message") or "")
    if state == PROCESSING and said.startswith("waiting"):
        return one_line(said)
    return one_line(waiting_for)


@dataclass(frozen=True)
class Progress:
    """How far a job is: `share` 0 to 1 over all learners; `step` of `of` of the first one; `checkpoint` the newest of
    any; `eta` in seconds; `restarts` in place."""

    share: float | None = None
    step: int | None = None
    of: int | None = None
    eta: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: int | None = None
    restarts: int = 0


def _progress(report: Mapping[str, Any], nodes: list[NodeStatus], now: float | None) -> Progress:
    """From the helper's report; where there is none, from what the nodes say."""
    share = _share(report.get("progress"))
    if share is None:
        said = {node.role: _share(node.progress) for node in nodes if node.progress not in ("0/1", "1/1")}  # Argo's own
        share = said.get("checkpoint", said.get("learner"))
    eta = report.get("eta")
    if eta is not None and now is not None:
        age = now - float(report.get("time") or 0.0)
        eta = max(0.0, eta - age) if age < max(FRESH, eta) else None
    metrics = dict(report.get("metrics") or {})
    restarts = report.get("restarts") or 0
    return Progress(share, report.get("step"), report.get("of"), eta, metrics, report.get("checkpoint"), restarts)


def _share(progress: str | None) -> float | None:
    done, _, total = (progress or "").partition("/")
    if not (done.isdecimal() and total.isdecimal() and int(total)):
        return None
    return min(1.0, int(done) / int(total))
