"""What two engines made of one Workflow, normalised and compared. Pure.

A tree is a Workflow's `status`. What must differ between two runs is taken out: times, durations, resources, hosts,
addresses and the ids that a cluster gives. The Workflow's name is the same on both sides, so ids of nodes and names of
pods are not touched. Children are compared as sets: Argo walks the tasks that one waits for in the random order of a Go
map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

VOLATILE = frozenset(
    ("startedAt", "finishedAt", "estimatedDuration", "resourcesDuration", "hostNodeName", "podIP", "taskResultSynced")
)
IDENTITIES = ("boundaryID", "children", "outboundNodes")
WORKFLOW_FIELDS = ("phase", "message", "progress", "outputs")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?Z| \+0000( UTC)?)?")
_ADDRESS = re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b")
_EMPTY = (None, "", [], {})

Tree = dict[str, dict[str, Any]]  # path of a node below the Workflow ("" its root, "*" the Workflow itself) -> fields


@dataclass(frozen=True)
class Difference:
    """One field of one node; `argo` and `here` are None where the node, or the field, is not there."""

    node: str
    field: str
    argo: Any
    here: Any

    def __str__(self) -> str:
        where = "the Workflow" if self.node == "*" else f"node {self.node or 'root'}"
        what = f".{self.field}" if self.field else ""
        return f"{where}{what}\n    argo  {_shown(self.argo)}\n    here  {_shown(self.here)}"


def tree(workflow: Mapping[str, Any]) -> Tree:
    """The normalised status of `workflow`, by the nodes' names."""
    name, status = workflow["metadata"]["name"], workflow.get("status") or {}
    replaced = {uid: "<uid>"} if (uid := workflow["metadata"].get("uid")) else {}
    nodes = status.get("nodes") or {}
    names = {key: _path(name, node["name"]) for key, node in nodes.items()}
    found = {"*": {key: _plain(status.get(key), replaced) for key in WORKFLOW_FIELDS if status.get(key) not in _EMPTY}}
    for key, node in nodes.items():
        kept = {field: value for field, value in node.items() if field not in VOLATILE and value not in _EMPTY}
        for field in IDENTITIES:
            if field in kept:
                kept[field] = _named(kept[field], names)
        found[names[key]] = {field: _plain(value, replaced) for field, value in kept.items()}
    return found


def compare(argo: Tree, here: Tree) -> list[Difference]:
    """What differs, in the order of the nodes' names; of a node that one side has not, only that."""
    return [difference for path in sorted({*argo, *here}) for difference in _compare(path, argo, here)]


def _compare(path: str, argo: Tree, here: Tree) -> Iterator[Difference]:
    one, other = argo.get(path), here.get(path)
    if one is None or other is None:
        yield Difference(path, "", _summary(one), _summary(other))
        return
    for field in sorted({*one, *other}):
        if one.get(field) != other.get(field):
            yield Difference(path, field, one.get(field), other.get(field))


def seconds(time: str) -> float:
    """The unix seconds of a time of Kubernetes."""
    return datetime.fromisoformat(time).timestamp()


def outline(found: Tree) -> str:
    """The tree in a line a node, for people."""
    lines = [f"{found['*'].get('phase', '')}: {found['*'].get('message', '')}".rstrip(": ")]
    lines += [f"  {path or 'root':40} {_summary(node)}" for path, node in sorted(found.items()) if path != "*"]
    return "\n".join(lines)


def _summary(node: Mapping[str, Any] | None) -> str | None:
    if node is None:
        return None
    message = f": {node['message']}" if "message" in node else ""
    return f"{node.get('type', '')} {node.get('phase', '')}{message}"


def _path(workflow: str, name: str) -> str:
    return name.removeprefix(workflow)


def _named(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return sorted(names.get(key, key) for key in value)
    return names.get(value, value)


def _plain(value: Any, replaced: Mapping[str, str]) -> Any:
    """Times, addresses and given ids out of every string; a mapping in the order of its keys."""
    if isinstance(value, str):
        for old, new in replaced.items():
            value = value.replace(old, new)
        return _ADDRESS.sub("<address>", _TIME.sub("<time>", value))
    if isinstance(value, Mapping):
        return {key: _plain(inner, replaced) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [_plain(inner, replaced) for inner in value]
    return value


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
