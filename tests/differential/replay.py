"""The embedded controller, on a machine whose pods end as the recorded ones did, in their order, at their times."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from ffdl.engines.local.operator import Decision, NotSuspendedError, invalid, reconcile, resume, unsupported
from ffdl.engines.local.pod import ContainerEnd, PodObservation
from ffdl.workflows.template_refs import Library

from . import trees
from .record import Record

_MOST_PASSES = 5000
_TERMINAL = ("Succeeded", "Failed", "Error")


@dataclass
class Played:
    """The Workflow as the embedded controller left it, and what it did not do that Argo did."""

    workflow: dict[str, Any]
    problems: list[str] = field(default_factory=list)


def play(record: Record) -> Played:
    """Replays `record` until nothing more can happen."""
    return _Machine(record).play()


def refused(record: Record) -> str:
    """The first field of a Workflow that Argo took and the embedded engine refuses, '' if there is none."""
    return "" if record.refused else next(iter(_unsupported(record)), "")


def differences(record: Record) -> list[trees.Difference]:
    """What the embedded controller makes of `record` otherwise than Argo did."""
    if record.refused:
        here = "" if _unsupported(record) or invalid(record.workflow) else "accepted"
        return [trees.Difference("*", "", record.refused, here)] if here else []
    played = play(record)
    found = trees.compare(record.tree, trees.tree(played.workflow))
    return [*found, *(trees.Difference("*", "", None, problem) for problem in played.problems)]


def _unsupported(record: Record) -> list[str]:
    return unsupported(Library(record.objects).joined(record.workflow))


class _Machine:
    def __init__(self, record: Record) -> None:
        library = Library(record.objects)
        joined = library.joined(copy.deepcopy(record.workflow))
        self.workflow: dict[str, Any] = {**joined, "status": {"storedTemplates": library.stored(joined)}}
        started = record.status.get("startedAt") or record.workflow["metadata"]["creationTimestamp"]
        self.start = trees.seconds(started)
        self.now = self.start
        self.events = copy.deepcopy(record.events)
        self.pods: dict[str, PodObservation] = {}
        self.names: dict[str, str] = {}  # node id -> its pod
        self.problems: list[str] = []

    def play(self) -> Played:
        for _ in range(_MOST_PASSES):
            decision = reconcile(self.workflow, self.pods, self.now)
            self.workflow["status"] = json.loads(json.dumps(decision.status))
            if self._launch(decision):
                continue
            if self.workflow["status"].get("phase") in _TERMINAL or not self._go_on(decision.wake):
                return Played(self.workflow, self.problems)
        self.problems.append(f"does not come to rest in {_MOST_PASSES} passes")
        return Played(self.workflow, self.problems)

    def _launch(self, decision: Decision) -> bool:
        for request in [*decision.start, *decision.resources]:
            self.names[request.node_id] = request.pod_name
            up = not self._daemon(request.node_id)
            self.pods[request.pod_name] = PodObservation("Running", ready=up, started_at=self.now)
        for name in decision.terminate:
            self.pods[name] = PodObservation("Error", -1, "pod deleted", finished_at=self.now)
        return bool(decision.start or decision.resources or decision.terminate)

    def _daemon(self, key: str) -> bool:
        """Whether the pod of the node `key` is to come up, as daemons do."""
        return any(event.get("pods", {}).get(key, {}).get("phase") == "Running" for event in self.events)

    def _go_on(self, wake: float | None) -> bool:
        """Brings about what happens next: the next event, or the time that the controller waits for."""
        if not self.events:
            self.now = max(self.now, wake or 0.0)
            return wake is not None
        event = self.events[0]
        due = self.start + event["at"]
        missing = [key for key in event.get("pods", {}) if key not in self.names]
        if wake is not None and (missing or wake < due):
            self.now = max(self.now, wake)
            return True
        self.now = max(self.now, due)
        self.events.pop(0)
        for key in missing:
            self.problems.append(f"{key} ended on Argo, and was never started here")
        for key in event.get("pods", {}).keys() - set(missing):
            self.pods[self.names[key]] = self._observation(event["pods"][key])
        if "patch" in event:
            self.workflow = merge(self.workflow, event["patch"])
        if "resume" in event:
            self._resume(event["node"], event["resume"])
        return True

    def _resume(self, node: str, how: dict[str, Any] | str) -> None:
        try:
            self.workflow["status"] = resume(self.workflow, self.now, **resumption(node, how))
        except NotSuspendedError as error:
            self.problems.append(f"{node} can't be resumed: {error}")

    def _observation(self, seen: dict[str, Any]) -> PodObservation:
        """Without the message where it only says what the exit code says: that is the controller's to word."""
        if seen["phase"] == "Running":
            return PodObservation("Running", ip=seen["ip"])
        code, message = seen.get("code"), seen["message"]
        return PodObservation(
            seen["phase"],
            code,
            "" if message == f"main: Error (exit code {code})" else message,
            seen.get("outputs", {}),
            seen.get("artifacts", []),
            seen.get("result"),
            {name: ContainerEnd(**end) for name, end in seen.get("containers", {}).items()},
            finished_at=self.start + seen["at"] if "at" in seen else None,
            progress=seen.get("progress", ""),
        )


def resumption(node: str, how: dict[str, Any] | str) -> dict[str, Any]:
    """How a suspended node is let go on (`Case.acts`), as the embedded engine is asked for it."""
    if not isinstance(how, dict):
        return {}
    return {"selector": f"displayName={node}", **({"phase": ""} | how if how else {})}


def merge(value: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, inner in patch.items():
        if inner is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), inner)
    return merged
