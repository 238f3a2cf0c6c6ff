"""What nobody inside a job can do for it: end a job whose pods can't start, free a helper of a dead node, tidy up.

Pure: a Workflow, its pods and their events go in, actions come out; done twice they do no harm. Times in unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..learner import contract, waiting
from .nodes import ENDED, STORE_ROLES, raw_nodes, unix_time

UNRELEASED_AFTER = 3600.0  # seconds after which a submission that was not completed is removed
DEAD_AFTER = 120.0  # seconds beyond its grace after which a pod counts as one of a node that is gone
STORE_AFTER = 300.0  # seconds that storing the results of a job that was stopped has for its start
CARRIER_AFTER = 7 * 3600.0  # seconds; no command uses one for longer than six hours
HELPER = "checkpoint"
KEEPERS = (HELPER, *STORE_ROLES)  # looked after by no other pod; the helper looks after the rest
DEFAULT_START_TIMEOUT = 3600.0


@dataclass(frozen=True)
class DeleteJob:
    job_id: str
    why: str


@dataclass(frozen=True)
class StopJob:
    """To be stopped with `why` as its reason, in one change. `at_once`: without trying to store what there is."""

    job_id: str
    why: str
    at_once: bool = False


@dataclass(frozen=True)
class DeletePod:
    pod: str
    why: str
    force: bool = False


@dataclass(frozen=True)
class DeleteRecord:
    job_id: str
    why: str


Action = DeleteJob | StopJob | DeletePod | DeleteRecord
Object = Mapping[str, Any]


def sweep(workflow: Object, pods: Sequence[Object], now: float, events: Sequence[Object] = ()) -> list[Action]:
    """What is to be done about a job that has not ended. `pods` are all of its pods, or, where its helper runs, at
    least the helper's and those that store.
    """
    job_id = workflow["metadata"]["name"]
    status, spec = workflow.get("status") or {}, workflow.get("spec") or {}
    annotations = workflow["metadata"].get("annotations") or {}
    if status.get("phase") in ENDED:
        return []
    nodes = raw_nodes(status)
    if spec.get("suspend") and not nodes and contract.ANNOTATION_RELEASED not in annotations:
        age = now - (unix_time(workflow["metadata"].get("creationTimestamp")) or now)
        return [DeleteJob(job_id, "its submission was not completed")] if age > UNRELEASED_AFTER else []
    helped = helper_runs(pods)
    actions: list[Action] = [
        DeletePod(_name(pod), "it does not end: its node is gone", force=True)
        for pod in pods
        if (role(pod) in KEEPERS or not helped)
        and now - (unix_time(pod["metadata"].get("deletionTimestamp")) or now) > DEAD_AFTER
    ]
    if spec.get("suspend") and nodes and not helped:
        # a pod that waits starts in a suspended Workflow, too, once there is room
        waits = (pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending")
        actions += [DeletePod(_name(pod), "the job is halted") for pod in waits if not _deleted(pod)]
    stopping = spec.get("shutdown") == "Stop"
    if not spec.get("suspend") and (stopping or not spec.get("shutdown")) and not helped:
        limit = start_timeout(annotations)
        for words, since in _stuck(job_id, nodes, {_name(pod): pod for pod in pods}, events):
            if now - since > (min(limit, STORE_AFTER) if stopping else limit):
                return [*actions, _stop(job_id, nodes, annotations, words, stopping)]
    return actions


def _stop(
    job_id: str, nodes: Mapping[str, Object], annotations: Mapping[str, str], words: str, stopping: bool
) -> StopJob:
    """Stop still runs the exit handler: not where it is what can't start, nor where there is nothing to store."""
    if stopping:
        reason = annotations.get(contract.ANNOTATION_REASON) or "stopped"
        return StopJob(job_id, f"{reason}; results could not be stored: {words}", at_once=True)
    why = f"could not start within start_timeout ({start_timeout(annotations):g} s): {words}"
    pods = [node for node in nodes.values() if node.get("type") == "Pod"]
    began = any(
        node.get("phase") != "Pending" and not waiting.never_began(str(node.get("message") or "")) for node in pods
    )
    return StopJob(job_id, why, at_once=not began)


def worth_a_look(workflow: Object, now: float) -> bool:
    """Whether `sweep` could find something to do about pods that don't start, by the Workflow alone: without asking for
    the pods of each job, `list` stays quick.
    """
    if sweep(workflow, [], now):
        return True
    status, spec = workflow.get("status") or {}, workflow.get("spec") or {}
    if status.get("phase") in ENDED or spec.get("suspend"):
        return False
    limit = start_timeout(workflow["metadata"].get("annotations") or {})
    limit = min(limit, STORE_AFTER) if spec.get("shutdown") else limit
    last = [attempts[-1] for attempts in _attempts(raw_nodes(status))]
    return any(node.get("phase") == "Pending" and now - _waits_since(node, None) > limit for node in last)


def sweep_record(record: Object, has_workflow: bool, ended: float | None, now: float, ttl: float) -> list[Action]:
    """A record stays for `ttl` seconds after the job has ended or, where nobody noted when, after its submission."""
    created = unix_time(record["metadata"].get("creationTimestamp"))
    age = now - (ended or created or now)
    if has_workflow or age <= ttl:
        return []
    return [DeleteRecord(record["metadata"]["labels"][contract.LABEL_JOB], "its time is over")]


def sweep_carrier(pod: Object, now: float) -> list[Action]:
    """Carriers end with the command that started them, unless that was killed."""
    age = now - (unix_time(pod["metadata"].get("creationTimestamp")) or now)
    return [DeletePod(_name(pod), "the command that used it is gone")] if age > CARRIER_AFTER else []


def helper_runs(pods: Iterable[Object]) -> bool:
    """Whether the job's helper is at work; it then does by itself whatever else is to be done."""
    return any(
        role(pod) == HELPER and (pod.get("status") or {}).get("phase") == "Running" and not _deleted(pod)
        for pod in pods
    )


def role(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(contract.LABEL_ROLE, ""))


def start_timeout(annotations: Mapping[str, str]) -> float:
    """In seconds, as the Workflow's annotation says."""
    try:
        return float(annotations[contract.ANNOTATION_START_TIMEOUT])
    except (KeyError, ValueError):
        return DEFAULT_START_TIMEOUT


def _deleted(pod: Object) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _stuck(
    job_id: str, nodes: Mapping[str, Object], pods: Mapping[str, Object], events: Sequence[Object]
) -> Iterator[tuple[str, float]]:
    """Of each step and learner that waits for what won't come: the cluster's words, and since when."""
    for attempts in _attempts(nodes):
        last = attempts[-1]
        if last.get("phase") == "Pending":
            pod = pods.get(contract.pod_name(job_id, last))
            message = (waiting.pod_message(pod, events) if pod else "") or str(last.get("message") or "")
            if waiting.judge(message) == waiting.STUCK:
                yield message, _waits_since(last, pod)
                continue
        ended = [node for node in attempts if node.get("phase") in ENDED]
        refused = _last_that_never_began(ended)
        if refused and (last is ended[-1] or last.get("phase") == "Pending"):
            yield " ".join(str(refused[-1]["message"]).split()), unix_time(refused[0].get("startedAt")) or 0.0


def _attempts(nodes: Mapping[str, Object]) -> Iterator[list[Object]]:
    """The attempts, oldest first, of each step and learner that has not ended."""
    taken: set[str] = set()
    for node in nodes.values():
        if node.get("type") != "Retry":
            continue
        children = [child for child in node.get("children") or () if nodes.get(child, {}).get("type") == "Pod"]
        taken.update(children)
        if children and node.get("phase") not in ENDED:
            yield [nodes[child] for child in children]
    for key, node in nodes.items():
        if node.get("type") == "Pod" and key not in taken and node.get("phase") not in ENDED:
            yield [node]


def _last_that_never_began(ended: Sequence[Object]) -> list[Object]:
    """The longest run of such attempts at the end."""
    run: list[Object] = []
    for node in reversed(ended):
        if not waiting.never_began(str(node.get("message") or "")):
            break
        run.append(node)
    return run[::-1]


def _waits_since(node: Object, pod: Object | None) -> float:
    """The last time that the pod got anywhere: made, scheduled, its volumes mounted."""
    times = [node.get("startedAt")]
    if pod is not None:
        conditions = (pod.get("status") or {}).get("conditions") or ()
        steps = [c.get("lastTransitionTime") for c in conditions if c.get("type") in ("PodScheduled", "Initialized")]
        times = [pod["metadata"].get("creationTimestamp"), *steps]
    return max((unix_time(time) or 0.0 for time in times), default=0.0)
