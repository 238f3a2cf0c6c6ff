"""`status.nodes`: names, ids, times and the few ways in which a node changes. Copies a node before its first change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

Node = dict[str, Any]

PENDING, RUNNING, SUCCEEDED, FAILED, ERROR = "Pending", "Running", "Succeeded", "Failed", "Error"
SKIPPED, OMITTED = "Skipped", "Omitted"
UNSUCCESSFUL = frozenset((FAILED, ERROR))
COMPLETED = frozenset((SUCCEEDED, FAILED, ERROR))  # it ran
FULFILLED = COMPLETED | {SKIPPED, OMITTED}  # nothing more will come of it

_BOUNDARY = re.compile(r"^(\[\d+\])?\.")
_MOST_OF_A_POD_NAME = 242  # Kubernetes' 253, less "-" and Argo's 10 characters for the hash


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash, which Argo's ids and pod names are made with."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def node_id(workflow: str, name: str) -> str:
    return workflow if name == workflow else f"{workflow}-{fnv1a(name)}"


def pod_name(workflow: str, name: str, template: str, hashed: str = "") -> str:
    """The pod of the node `name`: Argo's second version of pod names. `hashed`: its `fnv1a`, where known."""
    if name == workflow:
        return workflow
    prefix = f"{workflow}-{template}" if template else workflow
    return f"{prefix[:_MOST_OF_A_POD_NAME]}-{hashed or fnv1a(name)}"


def timestamp(seconds: float) -> str:
    """Unix seconds as Kubernetes writes a time: RFC 3339, whole seconds, UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(time: str | None) -> float:
    """The reverse of `timestamp`; 0 for no time."""
    return datetime.fromisoformat(time).timestamp() if time else 0.0


def parameter(holder: Mapping[str, Any] | None, name: str) -> Any:
    """The value of the parameter `name` in `inputs`, `outputs` or `arguments`, or None."""
    for entry in (holder or {}).get("parameters") or []:
        if entry["name"] == name:
            return entry.get("value")
    return None


def text(value: Any) -> str:
    """A parameter's value, which YAML may have read as a number or a boolean, as the string that Argo makes of it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Nodes:
    """The nodes of one Workflow during one pass."""

    def __init__(self, workflow: str, nodes: Mapping[str, Node], now: float) -> None:
        self.workflow, self.now = workflow, timestamp(now)
        self._nodes = dict(nodes)
        self._names = {node["name"]: key for key, node in nodes.items()}
        self._own: set[str] = set()  # ids of the nodes that are this pass's copies
        self._own_lists: set[str] = set()  # likewise, of those whose list of children is
        self._children: dict[str, set[str]] = {}
        self.changed = False

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))

    def __getitem__(self, key: str) -> Node:
        return self._nodes[key]

    def get(self, key: str) -> Node | None:
        return self._nodes.get(key)

    def named(self, name: str) -> Node | None:
        key = self._names.get(name)
        return None if key is None else self._nodes[key]

    def to_dict(self) -> dict[str, Node]:
        return self._nodes

    def edit(self, node: Node) -> Node:
        """The copy of `node` that may be changed."""
        key = node["id"]
        self.changed = True
        if key not in self._own:
            self._own.add(key)
            self._nodes[key] = {**self._nodes[key]}
        return self._nodes[key]

    def create(
        self,
        name: str,
        kind: str,
        phase: str,
        *,
        template: str = "",
        boundary: str = "",
        flag: dict[str, bool] | None = None,
        inputs: dict[str, Any] | None = None,
        message: str = "",
    ) -> Node:
        """A node as Argo initialises it; without a `flag` it has none."""
        node: Node = {"id": node_id(self.workflow, name), "name": name, "displayName": name, "type": kind}
        holder = self._nodes.get(boundary)
        if holder is not None:
            node["displayName"] = _BOUNDARY.sub("", name.removeprefix(holder["name"]))
        if template:
            node["templateName"] = template
        node.update(templateScope=f"local/{self.workflow}", phase=phase)
        if boundary:
            node["boundaryID"] = boundary
        if message:
            node["message"] = message
        node.update(startedAt=self.now, finishedAt=self.now if phase in FULFILLED else None)
        if flag is not None:
            node["nodeFlag"] = flag
        if inputs and inputs.get("parameters"):
            node["inputs"] = {"parameters": inputs["parameters"]}
        if kind == "Pod":
            node["taskResultSynced"] = True
        self._nodes[node["id"]] = node
        self._names[name] = node["id"]
        self._own.add(node["id"])
        self.changed = True
        return node

    def mark(self, node: Node, phase: str, message: str | None = None) -> Node:
        """Sets the phase and, unless None, the message; an end gets its time."""
        node = self[node["id"]]
        if node["phase"] == phase and (message is None or node.get("message", "") == message):
            return node
        node = self.edit(node)
        node["phase"] = phase
        if message:
            node["message"] = message
        elif message is not None:
            node.pop("message", None)
        if phase in FULFILLED and not node.get("finishedAt"):
            node["finishedAt"] = self.now
        return node

    def adopt(self, parent: Node, child: str) -> None:
        """Makes the node with the id `child` a child of `parent`, once."""
        key = parent["id"]
        known = self._children.get(key)
        if known is None:
            known = self._children[key] = set(self[key].get("children") or [])
        if child in known:
            return
        known.add(child)
        parent = self.edit(self[key])
        if key not in self._own_lists:
            self._own_lists.add(key)
            parent["children"] = list(parent.get("children") or [])
        parent["children"].append(child)

    def attempts(self, retry: Node) -> list[Node]:
        """The attempts of a Retry node, first to last."""
        children = (self._nodes[key] for key in self[retry["id"]].get("children") or [])
        return [node for node in children if (node.get("nodeFlag") or {}).get("retried")]

    def outbound(self, key: str) -> list[str]:
        """The last nodes to run beneath `id`, to which what follows is connected."""
        node = self._nodes[key]
        children = node.get("children") or []
        if node["type"] in ("Pod", "Skipped"):
            return [key]
        if node["type"] == "TaskGroup":
            return [last for child in children for last in self.outbound(child)] if children else [key]
        if node["type"] == "Retry" and children:
            return [children[-1]]
        return [last for child in node.get("outboundNodes") or [] for last in self.outbound(child)]
