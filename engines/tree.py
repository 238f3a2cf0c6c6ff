"""The nodes of a Workflow as the tree that people read: what runs in what, attempts under what is retried. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .nodes import NodeStatus, exit_code, one_line, raw_nodes, unix_time

QUIET = ("Succeeded", "Skipped", "Omitted", "Pending")
ENDED = ("Succeeded", "Failed", "Error", "Skipped", "Omitted")
MARKS = {
    "Succeeded": "✔", "Failed": "✖", "Error": "⚠", "Running": "●", "Pending": "◷", "Skipped": "○", "Omitted": "○",
}  # fmt: skip
WAITING = "‖"  # a suspend template's node that nobody has resumed yet
WAITING_TYPES = ("Suspend",)
_GROUP = re.compile(r"\[(\d+)\](?:\.|$)")
_ITEM = re.compile(r"\((\d+):")


@dataclass
class Item:
    """A node of the tree. Times in unix seconds; `path` names it within its Workflow, its attempts alike."""

    id: str
    name: str
    path: str
    kind: str
    phase: str
    template: str = ""
    message: str = ""
    started: float | None = None
    finished: float | None = None
    attempt: bool = False
    attempts: int = 1
    children: list[Item] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The path, with its number where the node is one of several attempts."""
        return self.path + self.name[self.name.rfind("(") :] if self.attempt else self.path

    @property
    def mark(self) -> str:
        waits = self.kind in WAITING_TYPES and self.phase in ("Running", "Pending")
        return WAITING if waits else MARKS.get(self.phase, "?")


@dataclass(frozen=True)
class Row:
    """A line of the tree: `lines` are drawn before `item`; where `item` is None, `words` stand for several."""

    lines: str
    item: Item | None
    words: str = ""


def node_path(workflow: str, node: Mapping[str, Any]) -> str:
    """A node's name within its Workflow, without the groups of steps it passes: `build.compile(0:x)`."""
    name = str(node.get("name", ""))
    if (node.get("nodeFlag") or {}).get("retried"):
        name = name.rpartition("(")[0]
    path = name.removeprefix(workflow)
    return _GROUP.sub(lambda match: "." if match[0].endswith(".") else "", path).lstrip(".") or workflow


def forest(workflow: Mapping[str, Any]) -> list[Item]:
    """The entrypoint's tree, then those of the exit handler and of other hooks, in the order in which they began.

    A suspended node that has no message says how it can be let go.
    """
    name = str((workflow.get("metadata") or {}).get("name", ""))
    nodes = raw_nodes(dict(workflow.get("status") or {}))
    items = {key: _item(name, node) for key, node in nodes.items()}
    owners = _owners(nodes)
    for key, node in nodes.items():
        if items[key].mark == WAITING and not items[key].message:
            items[key].message = _how_to_resume(workflow, node)
    roots: list[Item] = []
    for key, node in nodes.items():
        if node.get("type") == "StepGroup":
            continue
        owner = items.get(owners.get(key, ""))
        (roots if owner is None else owner.children).append(items[key])
    for key, item in items.items():
        item.children.sort(key=lambda child: _order(nodes[child.id]))
        if nodes[key].get("type") == "Retry":
            _merge_attempts(item)
    return sorted(roots, key=lambda item: (item.id != name, item.started or 0.0))


def _item(workflow: str, node: Mapping[str, Any]) -> Item:
    reference = node.get("templateRef") or {}
    return Item(
        id=str(node["id"]),
        name=str(node.get("displayName") or node.get("name", "")),
        path=node_path(workflow, node),
        kind=str(node.get("type", "")),
        phase=str(node.get("phase") or "Pending"),
        template=str(node.get("templateName") or "/".join(filter(None, map(reference.get, ("name", "template"))))),
        message=one_line(node.get("message") or ""),
        started=unix_time(node.get("startedAt")),
        finished=unix_time(node.get("finishedAt")),
        attempt=bool((node.get("nodeFlag") or {}).get("retried")),
    )


def _how_to_resume(workflow: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    name = workflow["metadata"]["name"]
    templates = (workflow.get("spec") or {}).get("templates") or []
    own = [each for each in templates if each.get("name") == node.get("templateName")]
    span = (own[0].get("suspend") or {}).get("duration") if own else None
    wanted = [
        f" --output {parameter['name']}=…"
        for parameter in (node.get("outputs") or {}).get("parameters") or []
        if "supplied" in (parameter.get("valueFrom") or {})
    ]
    for_a_time = f"waits for {span}{'s' if str(span).isdigit() else ''}; " if span else ""
    return f"{for_a_time}`ffdl resume {name} --node {node_path(name, node)}{''.join(wanted)}`"


def _owners(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By node: the one that it is shown beneath."""
    owners = {key: str(node["boundaryID"]) for key, node in nodes.items() if node.get("boundaryID")}
    inner = {str(nodes[key].get("name", "")): key for key in owners}
    for key, node in nodes.items():
        if node.get("type") in ("Retry", "TaskGroup"):
            prefix = str(node.get("name", "")) + "("
            for child in node.get("children") or ():
                if str(nodes.get(child, {}).get("name", "")).startswith(prefix):
                    owners[child] = key
        hook = re.match(r"(.+?)\.(?:onExit|hooks\.[^.]+)$", str(node.get("name", "")))
        if hook and (node.get("nodeFlag") or {}).get("hooked"):
            owners[key] = inner.get(hook[1]) or owners.get(key, "")
    return owners


def _order(node: Mapping[str, Any]) -> tuple[str, int, int]:
    name = str(node.get("name", ""))
    groups, items = _GROUP.findall(name), _ITEM.findall(name)
    return str(node.get("startedAt") or "~"), int(groups[-1]) if groups else 0, int(items[-1]) if items else 0


def _merge_attempts(item: Item) -> None:
    """What is retried is shown as one line while there is one attempt; the last one's message is the most telling."""
    attempts = [child for child in item.children if child.attempt]
    item.attempts = max(1, len(attempts))
    if not attempts:
        return
    last = attempts[-1]
    if item.phase not in ENDED:
        item.phase = last.phase if last.phase not in ("Failed", "Error") else "Pending"
        item.message = last.message
    if len(attempts) == 1:
        item.kind = last.kind
        item.message = last.message or item.message
        item.children = [child for child in item.children if child is not last] + last.children


def statuses(workflow: Mapping[str, Any]) -> list[NodeStatus]:
    """Every node by its path, attempts after what is retried: the tree, flat."""
    nodes = raw_nodes(dict(workflow.get("status") or {}))
    return [_status(item, nodes[item.id], nodes) for item in outer_first(forest(workflow))]


def _status(item: Item, node: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> NodeStatus:
    if node.get("type") == "Retry":  # what the last attempt says
        attempts = [nodes[key] for key in node.get("children") or () if key in nodes]
        node = next((each for each in reversed(attempts) if (each.get("nodeFlag") or {}).get("retried")), node)
    return NodeStatus(
        name=item.label,
        phase=item.phase,
        attempt=item.attempts,
        message=item.message,
        exit_code=exit_code(node),
        started=item.started,
        finished=item.finished,
        progress=str(node.get("progress") or ""),
    )


def outer_first(trees: Iterable[Item]) -> Iterator[Item]:
    """All nodes, each before those beneath it."""
    for tree in trees:
        yield tree
        yield from outer_first(tree.children)


def inner_first(trees: Iterable[Item]) -> Iterator[Item]:
    """All nodes, each after those beneath it."""
    for tree in trees:
        yield from inner_first(tree.children)
        yield tree


def rows(trees: Iterable[Item], most: int | None = None) -> list[Row]:
    """The lines of the trees. With `most`, quiet nodes among many of a kind are summed up until no more are left."""
    listed = list(trees)
    found = [row for tree in listed for row in _rows(tree, "", "", None)]
    if most is None:
        return found
    for few in (100, 30, 10, 4, 1):
        if len(found) <= most:
            return found
        found = [row for tree in listed for row in _rows(tree, "", "", few)]
    if len(found) <= most:
        return found
    hidden = len(found) - most + 1
    return [*found[: most - 1], Row("", None, f"… and {hidden} more lines")]


def _rows(item: Item, first: str, rest: str, few: int | None) -> list[Row]:
    found = [Row(first, item)]
    shown, words = _chosen(item.children, few)
    for number, child in enumerate(shown):
        last = number == len(shown) - 1 and not words
        found += _rows(child, rest + ("└─" if last else "├─"), rest + ("  " if last else "│ "), few)
    if words:
        found.append(Row(rest + "└─", None, words))
    return found


def _chosen(children: list[Item], few: int | None) -> tuple[list[Item], str]:
    """The children to show, and in words those that are left out: first of all what is as it should be."""
    if few is None or len(children) <= few + 1:
        return children, ""
    loud = [child for child in children if child.phase not in QUIET]
    kept = {child.id for child in loud[: max(few, 1)]}
    for child in children:
        if len(kept) >= few:
            break
        kept.add(child.id)
    left = Counter(child.phase for child in children if child.id not in kept)
    words = ", ".join(f"{MARKS.get(phase, '?')} {count} {phase}" for phase, count in left.most_common())
    return [child for child in children if child.id in kept], f"… {sum(left.values())} more: {words}"
