"""The helper's view of its own Workflow: one interface, and its form for the local engine's control folder."""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..learner import contract
from .watch import Watch

_LEARNER = re.compile(r"learner\((\d+):")
_ENDED = ("Succeeded", "Failed", "Error", "Skipped", "Omitted")


@dataclass(frozen=True)
class Snapshot:
    """What the helper wants to know of its Workflow.

    `learners`: how those that have ended for good did (index -> node phase), `messages` why. `oom_kills`: how many of
    their containers were killed for memory. `active`: learners with a running pod; `unstarted`: names of pods that have
    not started; `busy`: another step runs that a halt must wait for.
    """

    suspended: bool = False
    stop: bool = False
    known: bool = False  # there is a status at all
    failed_step: str = ""  # network or download, failed for good
    failed_reason: str = ""  # what that step says of it
    learners: dict[int, str] = field(default_factory=dict)
    messages: dict[int, str] = field(default_factory=dict)
    oom_kills: dict[int, int] = field(default_factory=dict)
    active: frozenset[int] = frozenset()
    unstarted: tuple[str, ...] = ()
    waiting: str = ""  # why one of them does not start, in its engine's words
    busy: bool = False


class View(Protocol):
    """What the helper reads of its Workflow, and the few things it writes."""

    watch: Watch

    def take_epoch(self) -> int:
        """An epoch higher than any before, taken so that no other helper has it."""

    def epoch(self) -> int:
        """The highest epoch taken."""

    def read(self) -> Snapshot: ...

    def annotate(self, annotations: dict[str, str]) -> None: ...

    def stop(self, annotations: dict[str, str]) -> None:
        """Stops the Workflow, and says why in the same write."""

    def delete_pod(self, name: str, force: bool = False) -> None: ...

    def report(self, report: dict[str, Any]) -> None: ...


class LocalView:
    """The Workflow of a job of the local engine, through the job's control folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        for name in (contract.CONTROL_EPOCHS, contract.CONTROL_REQUESTS):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        self.watch = Watch(folder)
        self._last: dict[str, Any] = {}

    def take_epoch(self) -> int:
        number = self.epoch() + 1
        while True:
            try:
                path = os.path.join(self._folder, contract.CONTROL_EPOCHS, str(number))
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                return number
            except FileExistsError:
                number += 1

    def epoch(self) -> int:
        names = os.listdir(os.path.join(self._folder, contract.CONTROL_EPOCHS))
        return max((int(name) for name in names if name.isdigit()), default=0)

    def read(self) -> Snapshot:
        return snapshot(self._json(contract.CONTROL_WORKFLOW), self._json(contract.CONTROL_STATUS))

    def annotate(self, annotations: dict[str, str]) -> None:
        self._request({"kind": contract.REQUEST_ANNOTATE, "annotations": annotations})

    def stop(self, annotations: dict[str, str]) -> None:
        self._request({"kind": contract.REQUEST_STOP, "annotations": annotations})

    def delete_pod(self, name: str, force: bool = False) -> None:
        self._request({"kind": contract.REQUEST_DELETE_POD, "pod": name, "force": force})

    def report(self, report: dict[str, Any]) -> None:
        contract.atomic_write(os.path.join(self._folder, contract.CONTROL_REPORT), json.dumps(report).encode())

    def _request(self, request: dict[str, Any]) -> None:
        target = os.path.join(self._folder, contract.CONTROL_REQUESTS, f"{uuid.uuid4().hex}.json")
        contract.atomic_write(target, json.dumps(request).encode())

    def _json(self, name: str) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder, name), "rb") as stream:
                self._last[name] = json.load(stream)
        except (OSError, ValueError):
            pass  # not there yet, or being replaced by an editor's hand: what was last read stands
        value = self._last.get(name)
        return value if isinstance(value, dict) else {}


def snapshot(workflow: dict[str, Any], status: dict[str, Any]) -> Snapshot:
    """A Snapshot from a Workflow object without status, and its status, as Argo writes them."""
    spec = workflow.get("spec") or {}
    annotations = (workflow.get("metadata") or {}).get("annotations") or {}
    nodes = [node for node in (status.get("nodes") or {}).values() if isinstance(node, dict)]
    learners: dict[int, str] = {}
    messages: dict[int, tuple[str, str]] = {}
    oom_kills: dict[int, int] = {}
    active, unstarted, waiting, failed_step, busy = set(), [], "", "", False
    retried = {node.get("displayName") for node in nodes if node.get("type") == "Retry"}
    for node in nodes:
        name, kind, phase = str(node.get("displayName", "")), node.get("type"), node.get("phase")
        match = _LEARNER.match(name)
        attempt_of = re.sub(r"\(\d+\)$", "", name)
        is_attempt = kind == "Pod" and attempt_of != name and attempt_of in retried
        if match and phase in _ENDED and not is_attempt:
            learners[int(match[1])] = str(phase)
        if match and is_attempt and node.get("message"):
            index, message = int(match[1]), str(node["message"])
            messages[index] = max(messages.get(index, ("", "")), (str(node.get("startedAt", "")), message))
            if "OOMKilled (exit code 137)" in message:
                oom_kills[index] = oom_kills.get(index, 0) + 1
        if name in ("network", "download") and not is_attempt and phase in ("Failed", "Error"):
            failed_step = name
        if kind == "Pod" and phase == "Running":
            if match:
                active.add(int(match[1]))
            elif attempt_of == "download":
                busy = True
        if kind == "Pod" and phase == "Pending" and (match or attempt_of == "download"):
            unstarted.append(_pod_name(workflow, node))
            waiting = waiting or str(node.get("message") or "")
    return Snapshot(
        suspended=spec.get("suspend") is True,
        stop=contract.ANNOTATION_STOP in annotations,
        known=bool(nodes),
        failed_step=failed_step,
        learners=learners,
        messages={index: message for index, (_, message) in messages.items()},
        oom_kills=oom_kills,
        active=frozenset(active),
        unstarted=tuple(unstarted),
        waiting=waiting,
        busy=busy,
    )


def _pod_name(workflow: dict[str, Any], node: dict[str, Any]) -> str:
    """As Argo names pods: Workflow, template, and the hash in which the node's id ends too."""
    name = (workflow.get("metadata") or {}).get("name", "")
    return f"{name}-{node.get('templateName', '')}-{str(node.get('id', '')).rpartition('-')[2]}"
