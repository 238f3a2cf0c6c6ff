"""The helper's view of its own Workflow: one interface, and its form for the local engine's control folder."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..learner import contract
from ..learner.waiting import ROOM, STARTING, STUCK, judge, never_began
from .watch import FolderWatch, Watch

MEMBER = re.compile(rf"({contract.LEARNER}|{contract.PARAMETER_SERVER})\((\d+):")
BEFORE_LEARNING = ("network", "download")  # templates whose pods, like members, are not to start in a halted job
_ATTEMPT = re.compile(r"^(.*)\((\d+)\)$")
_ENDED = ("Succeeded", "Failed", "Error", "Skipped", "Omitted")
Attempts = list[tuple[int, dict[str, Any]]]  # number and node


@dataclass(frozen=True)
class Snapshot:
    """What the helper wants to know of its Workflow.

    Learners and parameter servers go by their numbers (`number_of`). `members`: how those that have ended for good did
    (node phase), `messages` why. `oom_kills`: how many of their containers were killed for memory. `active`: those
    with a running pod. `pending`: pods that have not started, and why not, in their engine's words; `starting`: those
    of them that are there for certain; `refused`: why an attempt could not begin that is to be repeated. `busy`:
    another step runs that a halt must wait for. `overdue`: pods that should have ended long ago, and whose they are
    (None: a step's).
    """

    suspended: bool = False
    stop: bool = False
    known: bool = False  # there is a status at all
    failed_step: str = ""  # network or download, failed for good
    failed_reason: str = ""  # what that step says of it
    members: dict[int, str] = field(default_factory=dict)
    messages: dict[int, str] = field(default_factory=dict)
    oom_kills: dict[int, int] = field(default_factory=dict)
    active: frozenset[int] = frozenset()
    pending: dict[str, str] = field(default_factory=dict)
    starting: frozenset[str] = frozenset()
    refused: str = ""
    busy: bool = False
    overdue: tuple[tuple[str, int | None], ...] = ()

    @property
    def stuck(self) -> str:
        """Why one of the pods does not start, if waiting won't help."""
        worst = worst_of(self.pending.values())
        return worst if judge(worst) == STUCK else self.refused


class View(Protocol):
    """What the helper reads of its Workflow, and the few things it writes."""

    @property
    def watch(self) -> Watch: ...

    def take_epoch(self) -> int:
        """An epoch higher than any before, taken so that no other helper has it."""

    def epoch(self) -> int:
        """The highest epoch taken, as far as can be told at once."""

    def read(self, fresh: bool = False) -> Snapshot:
        """What is known; `fresh`: asks now, where that takes time."""

    def annotate(self, annotations: dict[str, str]) -> None: ...

    def stop(self, annotations: dict[str, str]) -> None:
        """Stops the Workflow, and says why in the same write."""

    def delete_pod(self, name: str, force: bool = False) -> None: ...

    def report(self, report: dict[str, Any]) -> None: ...

    def close(self) -> None:
        """What was written is done when it returns, if that is possible within a bound."""


class LocalView:
    """The Workflow of a job of the local engine, through the job's control folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        for name in (contract.CONTROL_EPOCHS, contract.CONTROL_REQUESTS):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        self.watch = FolderWatch(folder)
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

    def read(self, fresh: bool = False) -> Snapshot:
        return snapshot(self._json(contract.CONTROL_WORKFLOW), self._json(contract.CONTROL_STATUS))

    def annotate(self, annotations: dict[str, str]) -> None:
        self._request({"kind": contract.REQUEST_ANNOTATE, "annotations": annotations})

    def stop(self, annotations: dict[str, str]) -> None:
        self._request({"kind": contract.REQUEST_STOP, "annotations": annotations})

    def delete_pod(self, name: str, force: bool = False) -> None:
        self._request({"kind": contract.REQUEST_DELETE_POD, "pod": name, "force": force})

    def report(self, report: dict[str, Any]) -> None:
        contract.atomic_write(os.path.join(self._folder, contract.CONTROL_REPORT), json.dumps(report).encode())

    def close(self) -> None:
        self.watch.close()

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
    nodes = [node for node in _nodes(status).values() if isinstance(node, dict)]
    members: dict[int, str] = {}
    messages: dict[int, tuple[str, str]] = {}
    oom_kills: dict[int, int] = {}
    active, failed_step, busy = set(), "", False
    attempts: dict[str, Attempts] = {}
    retried = {node.get("displayName") for node in nodes if node.get("type") == "Retry"}
    for node in nodes:
        name, kind, phase = str(node.get("displayName", "")), node.get("type"), node.get("phase")
        member, attempt = member_in(name), _ATTEMPT.match(name)
        attempt_of = attempt[1] if attempt else name
        is_attempt = kind == "Pod" and attempt is not None and attempt_of in retried
        if member is not None and phase in _ENDED and not is_attempt:
            members[member] = str(phase)
        if member is not None and is_attempt and phase in _ENDED and node.get("message"):
            message = str(node["message"])
            messages[member] = max(messages.get(member, ("", "")), (str(node.get("startedAt", "")), message))
            if "OOMKilled (exit code 137)" in message:
                oom_kills[member] = oom_kills.get(member, 0) + 1
        if name in BEFORE_LEARNING and not is_attempt and phase in ("Failed", "Error"):
            failed_step = name
        if kind == "Pod" and phase == "Running":
            if member is not None:
                active.add(member)
            elif attempt_of == "download":
                busy = True
        if kind == "Pod" and (member is not None or attempt_of in BEFORE_LEARNING):
            number = int(attempt[2]) if is_attempt and attempt else 0
            attempts.setdefault(attempt_of if is_attempt else name, []).append((number, node))
    return Snapshot(
        suspended=spec.get("suspend") is True,
        stop=contract.ANNOTATION_STOP in annotations,
        known=bool(nodes),
        failed_step=failed_step,
        members=members,
        messages={index: message for index, (_, message) in messages.items()},
        oom_kills=oom_kills,
        active=frozenset(active),
        pending=dict(filter(None, (_pending(workflow, of_one) for of_one in attempts.values()))),
        refused=next(filter(None, (_refused(of_one) for of_one in attempts.values())), ""),
        busy=busy,
    )


def number_of(role: str, index: int) -> int:
    """By which a member of a job goes: a learner by its index from 0, a parameter server by ~index, below 0."""
    return ~index if role == contract.PARAMETER_SERVER else index


def member_in(name: str) -> int | None:
    """The number of the member whose node has this (display) name."""
    match = MEMBER.search(name)
    return number_of(match[1], int(match[2])) if match else None


def worst_of(messages: Iterable[str]) -> str:
    """Of several reasons for waiting the one that is least likely to pass."""
    return max(messages, key=lambda message: (STARTING, ROOM, STUCK).index(judge(message)), default="")


def _nodes(status: dict[str, Any]) -> dict[str, Any]:
    """`status.nodes`, unpacked where Argo has compressed it."""
    packed = status.get("compressedNodes")
    nodes = json.loads(gzip.decompress(base64.b64decode(packed))) if packed else status.get("nodes")
    return nodes if isinstance(nodes, dict) else {}


def _pending(workflow: dict[str, Any], attempts: Attempts) -> tuple[str, str] | None:
    """The pod that a step or learner waits for, and why.

    One whose attempts fail again and again before they begin waits for the same thing all the time.
    """
    *before, last = [node for _, node in sorted(attempts, key=lambda attempt: attempt[0])]
    if last.get("phase") != "Pending":
        return None
    pod = contract.pod_name((workflow.get("metadata") or {}).get("name", ""), last)
    return pod, worst_of([str(last.get("message") or ""), _never_began(before[-1:])])


def _refused(attempts: Attempts) -> str:
    last = max(attempts, key=lambda attempt: attempt[0])[1]
    return _never_began([last]) if last.get("phase") in _ENDED else ""


def _never_began(nodes: list[dict[str, Any]]) -> str:
    messages = [" ".join(str(node.get("message") or "").split()) for node in nodes]
    return next((message for message in messages if never_began(message)), "")
