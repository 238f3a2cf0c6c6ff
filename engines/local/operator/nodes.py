"""`status.nodes`, and the few ways in which a node changes. Copies a node before its first change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .census import Census
from .names import display_name, node_id, pod_name, timestamp
from .phases import FULFILLED

Node = dict[str, Any]


class Nodes:
    """The nodes of one Workflow during one pass."""

    def __init__(self, workflow: str, nodes: Mapping[str, Node], now: float, before: Nodes | None = None) -> None:
        """`before` is what made `nodes`, if it is still known: it saves looking at every node again."""
        self.workflow, self.now = workflow, timestamp(now)
        self._nodes: dict[str, Node] = dict(nodes)
        self._names: dict[str, str]
        self._live: dict[str, str]  # ids of those that have not ended; the name of a Pod's pod, else ""
        self._parents: dict[str, list[str]]
        self.census: Census
        if before is not None:
            self._names, self._live, self.census = before._names, before._live, before.census
            self._parents = before._parents
        else:
            self._parents = {}
            for key, node in nodes.items():
                for child in node.get("children") or []:
                    self._parents.setdefault(child, []).append(key)
            self._names = {node["name"]: key for key, node in nodes.items()}
            self._live = {key: self._pod(node) for key, node in nodes.items() if node["phase"] not in FULFILLED}
            self.census = Census(nodes.values())
        self._old = nodes
        self._own: dict[str, None] = {}  # ids of the nodes that are this pass's copies
        self._own_lists: set[str] = set()  # likewise, of those whose list of children is
        self._children: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))

    def __getitem__(self, key: str) -> Node:
        return self._nodes[key]

    def get(self, key: str) -> Node | None:
        return self._nodes.get(key)

    def named(self, name: str) -> Node | None:
        key = self._names.get(name)
        return None if key is None else self._nodes[key]

    def live(self) -> list[Node]:
        """The nodes that have not ended, daemons among them."""
        return [self._nodes[key] for key in self._live]

    def live_pods(self) -> list[tuple[str, Node]]:
        """The Pod nodes that have not ended, each with the name of its pod."""
        return [(pod, self._nodes[key]) for key, pod in self._live.items() if pod]

    def changed(self) -> list[tuple[Node | None, Node]]:
        """The nodes that this pass made or changed: (as it was, as it is)."""
        return [(self._old.get(key), self._nodes[key]) for key in self._own]

    def to_dict(self) -> dict[str, Node]:
        return self._nodes

    def edit(self, node: Node) -> Node:
        """The copy of `node` that may be changed, except in what `mark` and `adopt` change."""
        key = node["id"]
        if key not in self._own:
            self._own[key] = None
            self._nodes[key] = {**self._nodes[key]}
        return self._nodes[key]

    def create(
        self,
        name: str,
        kind: str,
        phase: str,
        *,
        origin: Mapping[str, Any] | None = None,
        scope: str = "",
        boundary: str = "",
        flag: Mapping[str, bool] | None = None,
        inputs: Mapping[str, Any] | None = None,
        message: str = "",
    ) -> Node:
        """A node as Argo initialises it; without a `flag` it has none. `origin` refers to its template, in `scope`."""
        node: Node = {"id": node_id(self.workflow, name), "name": name, "displayName": name, "type": kind}
        holder = self._nodes.get(boundary)
        if holder is not None:
            node["displayName"] = display_name(name, holder["name"])
        for key, field in (("template", "templateName"), ("templateRef", "templateRef")):
            if origin and origin.get(key):
                node[field] = origin[key]
        node.update(templateScope=scope, phase=phase)
        if boundary:
            node["boundaryID"] = boundary
        if message:
            node["message"] = message
        node.update(startedAt=self.now, finishedAt=self.now if phase in FULFILLED else None)
        if flag is not None:
            node["nodeFlag"] = dict(flag)
        if inputs:
            node["inputs"] = dict(inputs)
        key = node["id"]
        self._nodes[key] = node
        self._names[name] = key
        self._own[key] = None
        self._count(node, 1)
        return node

    def mark(self, node: Node, phase: str, message: str | None = None, *, daemoned: bool | None = None) -> Node:
        """Sets the phase and, unless None, the message and whether it is a daemon that is up; an end gets its time."""
        node = self[node["id"]]
        daemon = bool(node.get("daemoned"))
        becomes = daemon if daemoned is None else daemoned
        if (node["phase"], daemon) == (phase, becomes) and message in (None, node.get("message", "")):
            return node
        self._count(node, -1)
        node = self.edit(node)
        node["phase"] = phase
        if becomes:
            node["daemoned"] = True
        else:
            node.pop("daemoned", None)
        if message:
            node["message"] = message
        elif message is not None:
            node.pop("message", None)
        if phase in FULFILLED and not node.get("finishedAt"):
            node["finishedAt"] = self.now
        self._count(node, 1)
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
        self._parents.setdefault(child, []).append(key)
        parent = self.edit(self[key])
        if key not in self._own_lists:
            self._own_lists.add(key)
            parent["children"] = list(parent.get("children") or [])
        parent["children"].append(child)

    def above(self, key: str) -> set[str]:
        """The ids of the nodes from which `id` can be reached."""
        found: set[str] = set()
        stack = [key]
        while stack:
            for parent in self._parents.get(stack.pop(), ()):
                if parent not in found:
                    found.add(parent)
                    stack.append(parent)
        return found

    def children(self, node: Node) -> list[Node]:
        return [self._nodes[key] for key in self[node["id"]].get("children") or []]

    def attempts(self, retry: Node) -> list[Node]:
        """The attempts of a Retry node, first to last."""
        return [node for node in self.children(retry) if node["name"].startswith(f"{retry['name']}(")]

    def outbound(self, key: str) -> list[str]:
        """The last nodes to run beneath `id`, to which what follows is connected."""
        node = self._nodes[key]
        children = node.get("children") or []
        if node["type"] in ("Pod", "Container"):
            containers = [child for child in children if self._nodes[child]["type"] == "Container"]
            return [last for child in containers for last in self.outbound(child)] if containers else [key]
        if node["type"] in ("Skipped", "Suspend"):
            return [key]
        if node["type"] == "TaskGroup":
            return [last for child in children for last in self.outbound(child)] if children else [key]
        if node["type"] == "Retry" and children:
            return [children[-1]]
        return [last for child in node.get("outboundNodes") or [] for last in self.outbound(child)]

    def _count(self, node: Node, change: int) -> None:
        self.census.count(node, change)
        if change > 0:
            if node["phase"] in FULFILLED:
                self._live.pop(node["id"], None)
            elif node["id"] not in self._live:
                self._live[node["id"]] = self._pod(node)

    def _pod(self, node: Node) -> str:
        return pod_name(self.workflow, node) if node["type"] == "Pod" else ""
