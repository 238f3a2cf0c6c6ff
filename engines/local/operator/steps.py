"""Steps templates: groups of parallel steps, one group after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import loops
from .expressions import ExpressionError, evaluate_when
from .nodes import ERROR, FAILED, FULFILLED, RUNNING, SKIPPED, SUCCEEDED, UNSUCCESSFUL, Node
from .scope import group_scope, input_scope, node_scope, template_outputs
from .templates import EVERYTHING, OUTPUTS, UnresolvedError, substitute

if TYPE_CHECKING:
    from .operation import Call, Operation

Step = Mapping[str, Any]


def execute(op: Operation, call: Call, node: Node, template: Mapping[str, Any]) -> Node:
    """Brings the unfinished Steps `node` as far as it goes now. `template` has its inputs substituted."""
    nodes = op.nodes
    scope = input_scope((template.get("inputs") or {}).get("parameters") or [])
    before: Node | None = None
    for index, steps in enumerate(template["steps"]):
        name = f"{node['name']}[{index}]"
        group = nodes.named(name) or nodes.create(name, "StepGroup", RUNNING, boundary=node["id"], flag={})
        _connect(op, node, before, group)
        group = _execute_group(op, call.child(name, "", [], node["id"]), group, steps, scope)
        if group["phase"] not in FULFILLED:
            return nodes[node["id"]]
        if group["phase"] in UNSUCCESSFUL:
            nodes.edit(nodes[node["id"]])["outboundNodes"] = _outbound(op, group)
            return nodes.mark(node, FAILED, group.get("message", ""))
        for step in steps:
            scope |= _outputs(op, group, step)
        before = group
    if before is not None:
        nodes.edit(nodes[node["id"]])["outboundNodes"] = _outbound(op, before)
    try:
        outputs = template_outputs(template, scope)
    except (UnresolvedError, ExpressionError) as error:
        return nodes.mark(node, ERROR, str(error))
    if outputs:
        nodes.edit(nodes[node["id"]])["outputs"] = outputs
    return nodes.mark(node, SUCCEEDED)


def _connect(op: Operation, node: Node, before: Node | None, group: Node) -> None:
    if before is None:
        op.nodes.adopt(op.nodes[node["id"]], group["id"])
        return
    for last in _outbound(op, before) or [before["id"]]:
        op.nodes.adopt(op.nodes[last], group["id"])


def _outbound(op: Operation, group: Node) -> list[str]:
    return [last for child in op.nodes[group["id"]].get("children") or [] for last in op.nodes.outbound(child)]


def _execute_group(op: Operation, call: Call, group: Node, steps: list[Step], scope: dict[str, str]) -> Node:
    if group["phase"] in FULFILLED:
        return group
    try:
        resolved = [substitute(step, {**op.globals, **scope}, OUTPUTS) for step in steps]
        runs = [run for step in resolved for run in _runs(op, step, scope)]
    except (UnresolvedError, ExpressionError) as error:
        return op.nodes.mark(group, ERROR, f"failed to resolve references: {error}")
    except loops.LoopError as error:
        return op.nodes.mark(group, ERROR, str(error))
    goes_on: dict[str, Mapping[str, Any]] = {}
    started = True
    for step, name, proceed in runs:
        node = op.nodes.named(f"{group['name']}.{name}")
        if node is None and not proceed:
            message = f"when '{step['when']}' evaluated false" if step.get("when") else "Skipped, empty params"
            node = op.nodes.create(
                f"{group['name']}.{name}", "Skipped", SKIPPED,
                template=step["template"], boundary=call.boundary, flag={}, message=message,
            )  # fmt: skip
        elif node is None or node["phase"] not in FULFILLED:
            arguments = (step.get("arguments") or {}).get("parameters") or []
            node = op.execute(call.child(f"{group['name']}.{name}", step["template"], arguments, call.boundary))
        if node is None:  # no room for another pod now
            started = False
            continue
        goes_on[node["id"]] = step.get("continueOn") or {}
        op.nodes.adopt(group, node["id"])
    return _assess(op, op.nodes[group["id"]], goes_on) if started else op.nodes[group["id"]]


def _runs(op: Operation, step: Step, scope: dict[str, str]) -> list[tuple[Step, str, bool]]:
    """The runs of a step: (the step for it, its name, whether it runs)."""
    if not loops.loops(step):
        return [(step, step["name"], evaluate_when(step.get("when") or ""))]
    items = loops.items(step)
    if not items:
        return [({**step, "when": ""}, step["name"], False)]
    runs = []
    for index, item in enumerate(items):
        wanted = {key: step[key] for key in ("template", "arguments", "when", "continueOn") if key in step}
        own = substitute(wanted, {**op.globals, **scope, **loops.item_scope(item)}, EVERYTHING)
        runs.append((own, loops.run_name(step["name"], index, item), evaluate_when(own.get("when") or "")))
    return runs


def _assess(op: Operation, group: Node, goes_on: Mapping[str, Mapping[str, Any]]) -> Node:
    children = [op.nodes[key] for key in group.get("children") or []]
    if any(child["phase"] not in FULFILLED for child in children):
        return group
    for child in children:
        forgiven = goes_on.get(child["id"], {}).get("failed" if child["phase"] == FAILED else "error")
        if child["phase"] in UNSUCCESSFUL and not forgiven:
            return op.nodes.mark(group, FAILED, f"child '{child['id']}' failed")
    return op.nodes.mark(group, SUCCEEDED)


def _outputs(op: Operation, group: Node, step: Step) -> dict[str, str]:
    name = f"{group['name']}.{step['name']}"
    node = op.nodes.named(name)
    if node is not None:
        return node_scope(op.nodes, f"steps.{step['name']}", node)
    children = [op.nodes[key] for key in group.get("children") or []]
    runs = [child for child in children if child["name"].startswith(name + "(") and child["type"] != "Skipped"]
    return group_scope(f"steps.{step['name']}", runs)
