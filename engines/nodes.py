"""Reads Argo's `status.nodes`: the tree of a Workflow's nodes -> one NodeStatus for each step and learner. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ..learner import contract

STORE_ROLES = ("store-results", "store-after-failure")
ORDER = ("network", "download", "checkpoint", *contract.MEMBERS, *STORE_ROLES)
ENDED = ("Succeeded", "Failed", "Error")
WAITING = "Waiting"  # between two attempts: the last one ended, the next has not begun
ITEM = re.compile(r"\((\d+):(\d+)\)")  # Argo names the items of a list `task(position:value)`


def is_training_job(workflow: Mapping[str, Any]) -> bool:
    """Whether a Workflow is one that a manifest has become, not any other of Argo's."""
    return contract.ANNOTATION_SUMMARY in ((workflow.get("metadata") or {}).get("annotations") or {})


def is_being_stopped(workflow: Mapping[str, Any]) -> bool:
    """Whether its end was asked for."""
    annotations = (workflow.get("metadata") or {}).get("annotations") or {}
    return contract.ANNOTATION_STOP in annotations or bool((workflow.get("spec") or {}).get("shutdown"))


class NodeStatus(NamedTuple):
    """A step or a learner, over all of its attempts. Times in unix seconds.

    `phase` is Pending, Running, Waiting, Succeeded, Failed or Error. `attempt` counts those begun, the first is 1.
    Message, exit code and progress (`N/M`) are those of the last attempt.
    """

    name: str
    phase: str
    attempt: int
    message: str = ""
    exit_code: int | None = None
    started: float | None = None
    finished: float | None = None
    progress: str = ""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NodeStatus:
        """Reads `_asdict`'s form; keys it does not know (a later version's) are left out."""
        try:
            return cls(**values)
        except TypeError:
            return cls(**{key: values[key] for key in cls._fields if key in values})

    @property
    def role(self) -> str:
        role = self.name.rpartition("-")[0]
        return role if role in contract.MEMBERS else self.name

    @property
    def learner(self) -> int | None:
        """The learner's LEARNER_ID (from 1), or None for a step."""
        return int(self.name[8:]) if self.name.startswith("learner-") else None

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def alive(self) -> bool:
        """A pod of it is there: it runs, or will as soon as it can."""
        return self.phase in ("Pending", "Running")


def unix_time(text: str | None) -> float | None:
    """An RFC 3339 time of a Kubernetes object -> unix seconds."""
    return datetime.fromisoformat(text).timestamp() if text else None


def raw_nodes(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`status.nodes`, unpacked where Argo has compressed it."""
    packed = status.get("compressedNodes")
    if not packed:
        return status.get("nodes") or {}
    import base64
    import gzip
    import json

    nodes: dict[str, dict[str, Any]] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return nodes


def exit_code(node: Mapping[str, Any]) -> int | None:
    """That of a pod's main container, once it has ended."""
    code = (node.get("outputs") or {}).get("exitCode")
    return int(code) if code not in (None, "") else None


LEAVES = ("Pod", "Suspend")  # what does something itself


def failed_leaves(nodes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What failed for good, the first to fail first: attempts that were followed by another don't count."""
    listed = list(nodes)
    retried = {node["id"] for node in listed if (node.get("nodeFlag") or {}).get("retried")}
    attempts = ([key for key in node.get("children") or [] if key in retried] for node in listed)
    followed = {key for keys in attempts for key in keys[:-1]}
    failed = [n for n in listed if n.get("type") in LEAVES and n.get("phase") in ENDED[1:] and n["id"] not in followed]
    return sorted(failed, key=lambda node: (node.get("finishedAt") or "", node["name"]))


def first_failure(nodes: Iterable[dict[str, Any]]) -> tuple[str, int | None] | None:
    """`NODE: message` of what failed first, or else could not even begin, and its exit code. None if nothing did."""
    listed = list(nodes)
    unborn = (node for node in listed if node.get("type") == "Skipped" and node.get("phase") == "Error")
    for node in (*failed_leaves(listed), *unborn):
        why = one_line(f"{node['displayName']}: {node.get('message') or node['phase']}")
        return why, exit_code(node)
    return None


def read_nodes(status: dict[str, Any]) -> list[NodeStatus]:
    """All steps and learners of a Workflow's status, in the order in which a job goes through them."""
    nodes = raw_nodes(status)
    found: dict[str, NodeStatus] = {}
    attempts_of_others: set[str] = set()
    retries = [(key, node) for key, node in nodes.items() if node.get("type") == "Retry"]
    for _, node in retries:
        prefix = node.get("name", "") + "("
        children = [
            child for child in node.get("children", ()) if nodes.get(child, {}).get("name", "").startswith(prefix)
        ]
        attempts_of_others.update(children)
        _add(found, node, [nodes[child] for child in children])
    for key, node in nodes.items():
        if node.get("type") == "Pod" and key not in attempts_of_others:
            _add(found, node, [node])
    return sorted(found.values(), key=lambda node: (ORDER.index(node.role), len(node.name), node.name))


def _add(found: dict[str, NodeStatus], node: dict[str, Any], attempts: list[dict[str, Any]]) -> None:
    name = _name(node)
    if name:
        found[name] = _node_status(name, node, attempts)


def _name(node: dict[str, Any]) -> str:
    role: str = node.get("templateName", "")
    if role in contract.MEMBERS:
        return contract.member_name(role, _index(node))
    return role if role in ORDER else ""


def _index(node: dict[str, Any]) -> int:
    for parameter in (node.get("inputs") or {}).get("parameters", ()):
        if parameter.get("name") == "index":
            return int(parameter["value"])
    match = ITEM.search(node.get("displayName", ""))
    return int(match.group(2)) if match else 0


def _node_status(name: str, node: dict[str, Any], attempts: list[dict[str, Any]]) -> NodeStatus:
    attempts.sort(key=_attempt_number)
    last = attempts[-1] if attempts else {}
    phase = node.get("phase", "Pending")
    if phase not in ENDED and last:
        phase = WAITING if last.get("phase") in ENDED else last.get("phase", "Pending")
    return NodeStatus(
        name=name,
        phase=phase,
        attempt=max(1, len(attempts)),
        message=(last or node).get("message") or "",
        exit_code=exit_code(last),
        started=unix_time(attempts[0].get("startedAt") if attempts else node.get("startedAt")),
        finished=unix_time(node.get("finishedAt") or last.get("finishedAt")),
        progress=last.get("progress") or "",
    )


def _attempt_number(node: dict[str, Any]) -> int:
    number = node.get("name", "").rpartition("(")[2].rstrip(")")
    return int(number) if number.isdigit() else 0


def words(node: NodeStatus) -> str:
    """A step or learner in a sentence."""
    return node.name.replace("-", " ") if node.role in contract.MEMBERS else node.name


def one_line(text: str) -> str:
    return " ".join(text.split())
