"""Suspend templates: nodes that wait for a time, or for somebody to say that they may go on and with which outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import progress
from .calls import TemplateError
from .durations import duration
from .jsontext import text
from .names import seconds, template_name
from .nodes import Node, Nodes
from .outputs import publish
from .phases import PENDING, RUNNING, SUCCEEDED

if TYPE_CHECKING:
    from .operation import Operation


class NotSuspendedError(ValueError):
    """A suspended node that isn't there, or outputs that it doesn't wait for."""


def advance(op: Operation, node: Node, template: Mapping[str, Any]) -> Node:
    """Suspends `node`, or lets it go on when its time has come. `template` is substituted. Raises TemplateError."""
    if node["phase"] == PENDING:
        _expect(op, node, template)
    span = (template["suspend"] or {}).get("duration")
    if span:
        try:
            due = seconds(node["startedAt"]) + duration(str(span))
        except ValueError as error:
            raise TemplateError(f'{error}: time: invalid duration "{span}"') from None
        if op.now > due:
            _default(op.nodes, node)
            return op.nodes.mark(node, SUCCEEDED)
        op.wake_at(due + 0.001)
    return op.nodes.mark(node, RUNNING)


def resume(
    workflow: Mapping[str, Any],
    now: float,
    *,
    selector: str = "",
    outputs: Mapping[str, str] | None = None,
    phase: str = SUCCEEDED,
    message: str = "",
) -> dict[str, Any]:
    """The status of `workflow` after somebody told its suspended nodes to go on, at the unix time `now`.

    Without a `selector`, all of them, with the defaults of outputs that nobody supplied; else those that it fits
    (`displayName=approve`, of Argo's node fields, several with commas), with `outputs` (name -> value). With an empty
    `phase` they get their outputs and wait on. What `workflow` asks for in `spec.suspend` is another matter.
    Raises NotSuspendedError.
    """
    status = dict(workflow.get("status") or {})
    nodes = Nodes(workflow["metadata"]["name"], status.get("nodes") or {}, now)
    fits = _selector(selector)
    found = [node for node in nodes.live() if _suspended(node) and fits(node)]
    if not found:
        raise NotSuspendedError(f"no suspended node{f' with {selector}' if selector else ''}")
    for node in found:
        if outputs:
            status |= _supply(nodes, node, outputs, status)
        if not selector:
            try:
                _default(nodes, node)
            except TemplateError as error:
                raise NotSuspendedError(str(error)) from None
        if phase:
            nodes.mark(node, phase, message or None)
    status["progress"] = progress.update(nodes, status.get("progress", ""))
    status["nodes"] = nodes.to_dict()
    return status


def _suspended(node: Node) -> bool:
    return bool(node["type"] == "Suspend" and node["phase"] == RUNNING)


def _expect(op: Operation, node: Node, template: Mapping[str, Any]) -> None:
    """Notes at a new node what it waits for: the outputs to be supplied, and what may be chosen from."""
    inputs = (template.get("inputs") or {}).get("parameters") or []
    expected = []
    for output in (template.get("outputs") or {}).get("parameters") or []:
        source = output.get("valueFrom") or {}
        if "supplied" not in source:
            continue
        like = [p for p in inputs if p["name"] == output["name"] and "default" in p]
        if "default" not in source and like:
            output = {**output, "valueFrom": {**source, "default": like[0]["default"]}}
        expected.append(output)
    if expected:
        op.nodes.edit(node)["outputs"] = {"parameters": expected}
    if inputs:
        held = (node.get("inputs") or {}).get("parameters") or []
        op.nodes.edit(node)["inputs"] = {**node["inputs"], "parameters": [_choices(p) for p in held]}


def _choices(parameter: Mapping[str, Any]) -> Mapping[str, Any]:
    """An input whose value is a parameter in JSON offers that one's `enum`."""
    try:
        value = json.loads(text(parameter.get("value", "")))
    except ValueError:
        return parameter
    enum = value.get("enum") if isinstance(value, dict) else None
    return {**parameter, "enum": enum, "default": parameter.get("default", enum[0])} if enum else parameter


def _default(nodes: Nodes, node: Node) -> None:
    """Gives outputs that nobody supplied their defaults. Raises TemplateError for one that has none."""
    outputs = nodes[node["id"]].get("outputs")
    if not outputs:
        return
    given = []
    for parameter in outputs.get("parameters") or []:
        source = parameter.get("valueFrom") or {}
        if "supplied" in source:
            if "default" not in source:
                name = parameter["name"]
                raise TemplateError(f"raw output parameter '{name}' has not been set and does not have a default value")
            parameter = _with_value(parameter, source["default"])
        given.append(parameter)
    nodes.edit(node)["outputs"] = {**outputs, "parameters": given}


def _supply(nodes: Nodes, node: Node, values: Mapping[str, str], status: dict[str, Any]) -> dict[str, Any]:
    outputs = nodes[node["id"]].get("outputs")
    if outputs is None:
        raise NotSuspendedError("cannot set output parameters because node is not expecting any raw parameters")
    known = {parameter["name"]: parameter for parameter in outputs.get("parameters") or []}
    for name, value in values.items():
        if name not in known:
            raise NotSuspendedError(f"node is not expecting output parameter '{name}'")
        if "supplied" not in (known[name].get("valueFrom") or {}):
            raise NotSuspendedError(
                f"cannot set output parameter '{name}' because it does not use valueFrom.raw or it was already set"
            )
        known[name] = _with_value(known[name], value)
    nodes.edit(node)["outputs"] = {**outputs, "parameters": list(known.values())}
    publish(status, {"parameters": [known[name] for name in values]})
    return status


def _with_value(parameter: Mapping[str, Any], value: Any) -> dict[str, Any]:
    return {**{key: old for key, old in parameter.items() if key != "valueFrom"}, "value": text(value)}


def _selector(selector: str) -> Callable[[Node], bool]:
    """A field selector as `kubectl` reads one: `field=value` or `field!=value`, several with commas."""
    wanted = []
    for term in filter(None, selector.split(",")):
        field, unequal, value = term.partition("!=")
        if not unequal:
            field, equal, value = term.replace("==", "=", 1).partition("=")
            if not equal:
                raise NotSuspendedError(f"invalid selector: '{selector}'; can't understand '{term}'")
        wanted.append((field.strip(), value.strip(), not unequal))
    return lambda node: all((dict(_fields(node)).get(field, "") == value) is same for field, value, same in wanted)


def _fields(node: Node) -> Iterator[tuple[str, str]]:
    for field in ("displayName", "phase", "name", "id"):
        yield field, node[field]
    yield "templateName", template_name(node)
    for key, value in (node.get("templateRef") or {}).items():
        yield f"templateRef.{key}", value
    for parameter in (node.get("inputs") or {}).get("parameters") or []:
        yield f"inputs.parameters.{parameter['name']}.value", text(parameter.get("value", ""))
