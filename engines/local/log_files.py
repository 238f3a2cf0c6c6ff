"""Which files hold what a job's pods wrote: one a container of each attempt, named by whom it is of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...learner import contract
from ..base import Selection
from ..nodes import is_training_job, raw_nodes
from ..tree import ENDED, node_path
from .operator.names import pod_name
from .state import Job

MAIN = "main"
_ATTEMPT = re.compile(r"\((\d+)\)$")
_NAMED_BY = ("id", "name", "displayName", "templateName")

Node = Mapping[str, Any]


@dataclass(frozen=True)
class LogFile:
    """One attempt's file; `ended`: nothing will be written to it any more."""

    source: str
    attempt: int
    folder: Path
    container: str = MAIN
    ended: bool = False

    @property
    def path(self) -> Path:
        return self.folder / f"{self.container}.log"


def log_files(job: Job, workflow: dict[str, Any], wanted: Selection) -> list[LogFile]:
    """Those whose lines are wanted, in the order in which their nodes were started."""
    nodes = raw_nodes(workflow["status"])
    pods = sorted((n for n in nodes.values() if n.get("type") == "Pod"), key=_began)
    found = _of_job(job, pods, wanted) if is_training_job(workflow) else _of_workflow(job, nodes, pods, wanted)
    return [file for file in found if wanted.attempt in (None, file.attempt)]


def _began(node: Node) -> tuple[str, str]:
    return node.get("startedAt") or "", node["name"]


def _file(job: Job, pod: Node, source: str, container: str = MAIN, prefix: str = "") -> LogFile:
    match = _ATTEMPT.search(pod["name"])
    ended = pod.get("phase") in ENDED
    attempt = int(match.group(1)) + 1 if match else 1
    return LogFile(source, attempt, job.pods / pod_name(job.id, pod), prefix + container, ended)


def _of_job(job: Job, pods: Iterable[Node], wanted: Selection) -> Iterator[LogFile]:
    """A training job's: without a word of which, the learners'."""
    name = wanted.step or (f"learner-{wanted.learner}" if wanted.learner is not None else None)
    for pod in pods:
        source = _role(pod)
        if source == name if name else pod.get("templateName") == "learner":
            yield _file(job, pod, source)


def _role(pod: Node) -> str:
    template = str(pod.get("templateName", ""))
    for parameter in pod.get("inputs", {}).get("parameters", []):
        if template in contract.MEMBERS and parameter["name"] == "index":
            return contract.member_name(template, int(parameter["value"]))
    return "store-results" if template.startswith("store-") else template


def _of_workflow(job: Job, nodes: Mapping[str, Node], pods: Iterable[Node], wanted: Selection) -> Iterator[LogFile]:
    """Any other Workflow's: what the main containers wrote, and all of a container set; others by their names only."""
    if wanted.learner is not None:
        return
    sets: dict[str, list[Node]] = {}
    for node in nodes.values():
        if node.get("type") == "Container":
            sets.setdefault(str(node.get("boundaryID")), []).append(node)
    for pod in pods:
        source, inner = node_path(job.id, pod), sets.get(pod["id"], [])
        whole = wanted.step is None or wanted.step in _names(source, pod)
        for container in inner:
            if whole or wanted.step == node_path(job.id, container):
                yield _file(job, pod, node_path(job.id, container), str(container["displayName"]))
        if whole and not inner:
            yield _file(job, pod, source)
        elif wanted.step is not None and wanted.step.startswith(f"{source}.") and not inner:
            yield from _beside_main(job, pod, source, wanted.step)


def _beside_main(job: Job, pod: Node, source: str, step: str) -> Iterator[LogFile]:
    """A sidecar's or init container's, `NODE.CONTAINER`."""
    container = step.removeprefix(f"{source}.")
    for prefix in ("", "init-"):
        file = _file(job, pod, step, container, prefix)
        if "/" not in container and file.path.exists():
            yield file


def _names(source: str, pod: Node) -> set[str]:
    """What a pod may be called: its path, a name, its template or id; and what it is an item or attempt of."""
    names = {source, source.rpartition(".")[2], *(str(pod.get(key)) for key in _NAMED_BY)}
    return names | {name.partition("(")[0] for name in names}
