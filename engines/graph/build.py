"""From a Workflow to boxes: its templates as they call each other, and where it has run the state of each call."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...workflows.shapes import mapping, mappings
from ..nodes import one_line, raw_nodes
from ..tree import MARKS, WAITING_TYPES
from .model import JOINT, Box, Edge

MOST_BOXES = 3000  # templates that call each other twice double with each level
MOST_ITEMS = 8  # of a loop, drawn one by one
_USUAL = "Succeeded"
_DEPENDS = re.compile(r"([a-zA-Z0-9][-a-zA-Z0-9_]*)(?:\.([A-Z][a-zA-Z]+))?")
_ITEM = re.compile(r"\(\d+:")
_ONLY_OF_LOOPS = ("withItems", "withParam", "withSequence", "when")  # and of the task, not of each of its runs

Template = Mapping[str, Any]
Node = Mapping[str, Any]


def drawing(workflow: Mapping[str, Any]) -> Box:
    """The whole Workflow as one box without a title. A WorkflowTemplate without entrypoint is all that it offers.

    `status.storedTemplates` is where templates of others are looked for. What is malformed is left out.
    """
    return _Builder(workflow).whole()


class _Builder:
    def __init__(self, workflow: Mapping[str, Any]) -> None:
        self._spec = mapping(workflow.get("spec"))
        status = mapping(workflow.get("status"))
        metadata = mapping(workflow.get("metadata"))
        self._name = str(metadata.get("name") or str(metadata.get("generateName") or "workflow").rstrip("-"))
        self._own = {str(each.get("name")): each for each in mappings(self._spec.get("templates"))}
        self._stored = mapping(status.get("storedTemplates"))
        self._nodes: dict[str, Node] = {}
        self._names: dict[str, str] = {}  # by id
        self._runs: dict[str, list[Node]] = {}  # of loops, by the name of the task or step
        for node in raw_nodes(status).values():
            name = str(node.get("name", ""))
            self._nodes[name] = node
            self._names[str(node.get("id"))] = name
            if (match := _item_start(node)) is not None:
                self._runs.setdefault(name[:match], []).append(node)
        self._left = MOST_BOXES

    def whole(self) -> Box:
        root = Box("", "")
        entrypoint = self._spec.get("entrypoint")
        if not entrypoint:
            for name in self._never_called():
                root.children.append(self._call({"name": name, "template": name}, f"{self._name}/{name}", "", ()))
            return root
        first = self._call({"name": self._name, "template": entrypoint}, self._name, "", ())
        root.children.append(first)
        if self._spec.get("onExit"):
            name = f"{self._name}.onExit"
            handler = self._call({"name": "exit handler", "template": self._spec["onExit"]}, name, "", ())
            root.children.append(handler)
            root.edges.append(Edge(first.id, handler.id, "on exit", loose=True))
        self._hooks(root, self._spec, first, self._name, "", ())
        return root

    def _never_called(self) -> list[str]:
        called = {
            call.get("template") for each in self._own.values() for call in _calls(each) if not call.get("templateRef")
        }
        return [name for name in self._own if name not in called] or list(self._own)

    def _call(self, call: Mapping[str, Any], name: str, scope: str, above: tuple[str, ...]) -> Box:
        """The box of a task or step whose node is, or would be, called `name`."""
        self._left -= 1
        template, inner_scope, called = self._template(call, scope)
        node = self._nodes.get(name)
        loop, runs = _loop(call), self._runs.get(name, [])
        own = called if called != call.get("name") else ""
        words = [own, f"× {loop}" if loop and not runs else "", f"when {call['when']}" if call.get("when") else ""]
        box = Box(name, str(call.get("name", "")), one_line(" ".join(filter(None, words))))
        self._mark(box, node, runs)
        key = f"{inner_scope}/{called}"
        if runs:
            self._loop(box, call, runs, scope, above)
        elif template is None:
            box.facts = box.facts or "this template is not known here"
        elif (node is None and key in above) or self._left <= 0:
            box.subtitle = f"↻ {box.subtitle}" if key in above else f"{box.subtitle} …"
        else:
            self._fill(box, template, self._inside(name), inner_scope, (*above, key))
        return box

    def _template(self, call: Mapping[str, Any], scope: str) -> tuple[Template | None, str, str]:
        """The template of a call, where that looks for its own, and how it is called."""
        inline, reference = mapping(call.get("inline")), mapping(call.get("templateRef"))
        if inline:
            return inline, scope, ""
        if reference:
            kind = "cluster" if reference.get("clusterScope") else "namespaced"
            scope = f"{kind}/{reference.get('name')}"
            name = str(reference.get("template"))
            return self._stored.get(f"{scope}/{name}"), scope, f"{reference.get('name')}/{name}"
        name = str(call.get("template"))
        return (self._stored.get(f"{scope}/{name}") if scope else self._own.get(name)), scope, name

    def _inside(self, name: str) -> str:
        """Whose name those of what it runs begin with: of what is retried, the last attempt's."""
        node = self._nodes.get(name)
        if node is None or node.get("type") != "Retry":
            return name
        return next(reversed(self._attempts(node)), f"{name}(0)")

    def _attempts(self, node: Node) -> list[str]:
        """The names of the attempts of a Retry node."""
        children = (self._names.get(str(key), "") for key in node.get("children") or [])
        return [name for name in children if name.startswith(f"{node.get('name')}(")]

    def _mark(self, box: Box, node: Node | None, runs: list[Node]) -> None:
        if node is None:
            box.phase = _phase_of([str(run.get("phase")) for run in runs]) if runs else box.phase
            return
        box.phase = str(node.get("phase") or "Pending")
        box.waits = node.get("type") in WAITING_TYPES and box.phase in ("Running", "Pending")
        if node.get("type") == "Retry" and len(attempts := self._attempts(node)) > 1:
            box.subtitle = f"{box.subtitle} attempt {len(attempts)}"
        box.facts = one_line(str(node.get("message") or ""))

    def _loop(self, box: Box, call: Mapping[str, Any], runs: list[Node], scope: str, above: tuple[str, ...]) -> None:
        """The runs of a loop: each a box, or where they are many what has become of them."""
        if len(runs) > MOST_ITEMS:
            counted = Counter(str(run.get("phase")) for run in runs).most_common()
            words = " ".join(f"{MARKS.get(phase, '?')} {count}" for phase, count in counted)
            box.subtitle = f"{box.subtitle} × {len(runs)}: {words}"
            return
        once = {key: value for key, value in call.items() if key not in _ONLY_OF_LOOPS}
        for run in sorted(runs, key=_item_number):
            title = str(run.get("displayName") or run["name"])
            box.children.append(self._call({**once, "name": title}, str(run["name"]), scope, above))

    def _fill(self, box: Box, template: Template, name: str, scope: str, above: tuple[str, ...]) -> None:
        if "dag" in template:
            self._dag(box, mappings(mapping(template["dag"]).get("tasks")), name, scope, above)
        elif "steps" in template:
            self._steps(box, template.get("steps") or [], name, scope, above)
        elif "containerSet" in template:
            for each in mappings(mapping(template["containerSet"]).get("containers")):
                key = f"{name}.{each.get('name')}"
                container = Box(key, str(each.get("name")), "container")
                self._mark(container, self._nodes.get(key), [])
                box.children.append(container)
                box.edges += [Edge(f"{name}.{other}", key) for other in each.get("dependencies") or []]

    def _dag(self, box: Box, tasks: Sequence[Mapping[str, Any]], name: str, scope: str, above: tuple[str, ...]) -> None:
        known = {str(task.get("name")) for task in tasks}
        for task in tasks:
            inner = self._call(task, f"{name}.{task.get('name')}", scope, above)
            box.children.append(inner)
            for other, label in _waits_for(task).items():
                if other in known:
                    box.edges.append(Edge(f"{name}.{other}", inner.id, label))
            self._hooks(box, task, inner, inner.id, scope, above)

    def _steps(self, box: Box, groups: Sequence[Any], name: str, scope: str, above: tuple[str, ...]) -> None:
        before: list[Box] = []
        for index, group in enumerate(groups):
            inner = []
            for step in mappings(group if isinstance(group, list) else mapping(group).get("steps")):
                inner.append(self._call(step, f"{name}[{index}].{step.get('name')}", scope, above))
                self._hooks(box, step, inner[-1], inner[-1].id, scope, above)
            if len(before) > 1 and len(inner) > 1:
                joint = Box(f"{name}[{index}]", "", kind=JOINT)
                box.children.append(joint)
                box.edges += [Edge(each.id, joint.id) for each in before]
                before = [joint]
            box.edges += [Edge(one.id, other.id) for one in before for other in inner]
            box.children += inner
            before = inner or before

    def _hooks(
        self, holder: Box, owner: Mapping[str, Any], of: Box, name: str, scope: str, above: tuple[str, ...]
    ) -> None:
        """Lifecycle hooks beside what they belong to."""
        hooks = dict(mapping(owner.get("hooks")))
        if owner.get("onExit") and of.id != self._name:
            hooks.setdefault("exit", {"template": owner["onExit"]})
        for hook, call in hooks.items():
            end = "onExit" if hook == "exit" else f"hooks.{hook}"
            box = self._call({**mapping(call), "name": f"{of.title}.{end}"}, f"{name}.{end}", scope, above)
            holder.children.append(box)
            holder.edges.append(Edge(of.id, box.id, str(mapping(call).get("expression") or ""), loose=True))


def _waits_for(task: Mapping[str, Any]) -> dict[str, str]:
    """The tasks that one waits for, and in what other end than their success it is interested."""
    if not task.get("depends"):
        return {str(name): "" for name in task.get("dependencies") or []}
    found: dict[str, list[str]] = {}
    for match in _DEPENDS.finditer(str(task["depends"])):
        results = found.setdefault(match[1], [])
        if (result := match[2] or _USUAL) not in results:
            results.append(result)
    return {name: " or ".join(results) if results != [_USUAL] else "" for name, results in found.items()}


def _loop(call: Mapping[str, Any]) -> str:
    """How often a call is made, in words; empty: once."""
    if isinstance(call.get("withItems"), list):
        return str(len(call["withItems"]))
    if call.get("withParam"):
        return "each of a list"
    sequence = mapping(call.get("withSequence"))
    if not sequence:
        return ""
    return str(sequence.get("count") or f"{sequence.get('start', 0)} to {sequence.get('end')}")


def _phase_of(phases: list[str]) -> str:
    """What a loop's runs come to."""
    for phase in ("Running", "Pending", "Error", "Failed", "Succeeded"):
        if phase in phases:
            return phase
    return phases[0] if phases else ""


def _item_start(node: Node) -> int | None:
    """Where in its name the item of a loop begins that a node is the run of; its attempts and what is in it are not."""
    if (node.get("nodeFlag") or {}).get("retried"):
        return None
    name, display = str(node.get("name", "")), str(node.get("displayName", ""))
    match = _ITEM.search(display)
    if match is None or not name.endswith(display) or not display.endswith(")"):
        return None
    return len(name) - len(display) + match.start()


def _item_number(node: Node) -> int:
    match = _ITEM.search(str(node.get("displayName", "")))
    return int(match[0][1:-1]) if match else 0


def _calls(template: Template) -> list[Mapping[str, Any]]:
    steps = template.get("steps") or []
    found = mappings(mapping(template.get("dag")).get("tasks"))
    return found + [step for group in steps for step in mappings(group)]
