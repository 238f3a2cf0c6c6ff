"""What references may refer to: the Workflow's own values, and the outputs of its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from . import artifacts
from .expressions import ExpressionError, evaluate, show
from .expressions.errors import FaultError
from .expressions.values import from_json, to_json, type_name
from .jsontext import parameters, quoted, read, text, write
from .loops import loop_index
from .names import pod_name, seconds, template_name
from .nodes import Node, Nodes
from .phases import SUCCEEDED, UNSUCCESSFUL
from .templates import UnresolvedError, expand

_WORD = re.compile(r"[\w-]+")


def workflow_scope(workflow: Mapping[str, Any], now: float) -> dict[str, str]:
    """The `workflow.*` values. `workflow.status` is the last pass's; the exit handler sees that of `finished_scope`.

    Raises ExpressionError for a label that `workflowMetadata` can't work out.
    """
    metadata, spec, status = workflow["metadata"], workflow["spec"], workflow.get("status") or {}
    started = seconds(status.get("startedAt")) or now
    scope = {
        "workflow.name": metadata["name"],
        "workflow.namespace": metadata.get("namespace") or "",
        "workflow.uid": metadata.get("uid") or "",
        "workflow.mainEntrypoint": spec.get("entrypoint") or "",
        "workflow.serviceAccountName": spec.get("serviceAccountName") or "",
        "workflow.status": status.get("phase") or "",
        "workflow.duration": f"{max(now - started, 0.0):f}",
        **_created(metadata.get("creationTimestamp") or ""),
    }
    if spec.get("priority") is not None:
        scope["workflow.priority"] = str(spec["priority"])
    scheduled = (metadata.get("annotations") or {}).get("workflows.argoproj.io/scheduled-time")
    if scheduled is not None:
        scope["workflow.scheduledTime"] = scheduled
    declared = (spec.get("arguments") or {}).get("parameters")
    scope["workflow.parameters"] = scope["workflow.parameters.json"] = parameters(declared)
    scope |= _values("workflow.parameters", declared)
    scope |= _values("workflow.outputs.parameters", (status.get("outputs") or {}).get("parameters"))
    return scope | _metadata(metadata, spec.get("workflowMetadata") or {}, scope)


def _values(prefix: str, declared: list[Any] | None) -> dict[str, str]:
    whole = (p for p in declared or [] if p.get("name") is not None and p.get("value") is not None)
    return {f"{prefix}.{p['name']}": text(p["value"]) for p in whole}


def _created(timestamp: str) -> dict[str, str]:
    """`workflow.creationTimestamp`, whole, in seconds, and by the letters of strftime."""
    name = "workflow.creationTimestamp"
    moment = datetime.fromtimestamp(seconds(timestamp), UTC)
    letters = {f"{name}.{letter}": moment.strftime(f"%{letter}") for letter in "BbmAadHIMSYyp"}
    fixed = {f"{name}.Z": "UTC", f"{name}.z": "+0000", f"{name}.L": ".000", f"{name}.s": str(int(seconds(timestamp)))}
    return {name: timestamp, f"{name}.RFC3339": timestamp, **letters, **fixed}


def _metadata(metadata: Mapping[str, Any], added: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """Labels and annotations: the Workflow's own, and those that `workflowMetadata` adds, some by an expression."""
    scope: dict[str, str] = {}
    for kind in ("annotations", "labels"):
        values = {**(metadata.get(kind) or {}), **(added.get(kind) or {})}
        if kind == "labels":
            labels = {f"workflow.labels.{name}": text(value) for name, value in values.items()}
            names = expand({**known, **scope, **labels, "workflow.status": "", "workflow.duration": "0.000000"})
            values |= {name: _label(name, source, names) for name, source in (added.get("labelsFrom") or {}).items()}
        scope |= {f"workflow.{kind}.{name}": text(value) for name, value in values.items()}
        whole = {name: text(values[name]) for name in sorted(values)}
        scope[f"workflow.{kind}"] = scope[f"workflow.{kind}.json"] = write(whole) if whole else "null"
    return scope


def _label(name: str, source: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    expression = source.get("expression") or ""
    try:
        value = evaluate(expression, names)
    except ExpressionError as error:
        said = f"failed to evaluate label {quoted(name)} expression {quoted(expression)}: {error}"
        raise ExpressionError(said) from None
    if not isinstance(value, str):
        said = f"failed to evaluate label {quoted(name)} expression {quoted(expression)}"
        raise ExpressionError(f"{said} evaluted to {type_name(value)} but must be a string")
    return value


def finished_scope(nodes: Nodes, phase: str) -> dict[str, str]:
    """What the exit handler sees of the Workflow: how it ended, and which nodes failed."""
    failures = [
        {
            "displayName": node["displayName"],
            "message": node.get("message", ""),
            "templateName": template_name(node),
            "phase": node["phase"],
            "podName": pod_name(nodes.workflow, node),
            "finishedAt": node.get("finishedAt"),
        }
        for node in nodes
        if node["phase"] in UNSUCCESSFUL
    ]
    return {"workflow.status": phase, "workflow.failures": quoted(write(failures or None))}


def input_scope(inputs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    declared = list(inputs)
    return {**_values("inputs.parameters", declared), "inputs.parameters": parameters(declared)}


def node_scope(nodes: Nodes, prefix: str, node: Node) -> dict[str, str]:
    """The outputs of a task or step as others see them under `prefix`; of a retried one, those of its last attempt."""
    if node["type"] == "Retry" and (attempts := nodes.attempts(node)):
        node = attempts[-1]
    scope = {f"{prefix}.id": node["id"], f"{prefix}.status": node["phase"]}
    for key in ("startedAt", "finishedAt", "hostNodeName"):
        if node.get(key):
            scope[f"{prefix}.{key}"] = node[key]
    if node.get("podIP"):
        scope[f"{prefix}.ip"] = node["podIP"]
    outputs = node.get("outputs") or {}
    if "result" in outputs:
        scope[f"{prefix}.outputs.result"] = outputs["result"]
    if "exitCode" in outputs:
        scope[f"{prefix}.exitCode"] = outputs["exitCode"]
    for parameter in outputs.get("parameters") or []:
        if "value" in parameter:
            scope[f"{prefix}.outputs.parameters.{parameter['name']}"] = text(parameter["value"])
    return scope


def group_scope(prefix: str, runs: Iterable[Node]) -> dict[str, str]:
    """The outputs of a loop's nodes: lists, in the order of the loop. Raises UnresolvedError: a result is no JSON."""
    own = sorted(runs, key=loop_index)
    values: dict[str, list[str]] = {}
    each: list[dict[str, str]] = []
    results: list[Any] = []
    for node in own:
        outputs = node.get("outputs") or {}
        if node["phase"] != SUCCEEDED:
            continue
        if outputs.get("parameters"):
            each.append({p["name"]: text(p["value"]) for p in outputs["parameters"]})
            for name, value in each[-1].items():
                values.setdefault(name, []).append(value)
        if "result" in outputs:
            results.append(_read(outputs["result"]))
    if not own:
        return {}
    scope = {f"{prefix}.outputs.result": write(results), f"{prefix}.outputs.parameters": to_json(each)}
    scope.update({f"{prefix}.outputs.parameters.{name}": _aggregate(found) for name, found in values.items()})
    return scope


def mentioned(task: Any, names: list[str]) -> list[str]:
    """Those of the tasks `names` whose outputs `task` may refer to."""
    texts = list(_texts(task))
    if not texts:
        return []
    if any("{{=" in found for found in texts):
        return names
    words = {word for found in texts for word in _WORD.findall(found)}
    return [name for name in names if name in words]


def template_outputs(
    template: Mapping[str, Any], scope: Mapping[str, str], known: artifacts.Lookup
) -> dict[str, Any] | None:
    """The `outputs` of a DAG or steps template, out of those of its tasks. Raises UnresolvedError, ExpressionError.

    `template` is substituted, `scope` has its inputs and the outputs of its tasks and nothing else.
    """
    declared = (template.get("outputs") or {}).get("parameters") or []
    found = []
    for output in declared:
        source = output.get("valueFrom") or {}
        try:
            if source.get("expression"):
                value = show(evaluate(source["expression"], expand(scope)))
            else:
                value = _variable(source.get("parameter") or "", scope)
        except (UnresolvedError, ExpressionError):
            if "default" not in source:
                raise
            value = text(source["default"])
        found.append({**{k: v for k, v in output.items() if k != "valueFrom"}, "value": value})
    files = artifacts.outputs(template, known, scope)
    return {name: several for name, several in (("parameters", found), ("artifacts", files)) if several} or None


def _variable(reference: str, scope: Mapping[str, str]) -> str:
    """What one reference, and nothing beside it, stands for. Raises UnresolvedError."""
    name = reference.removeprefix("{{").removesuffix("}}").strip()
    if not name:
        return ""
    if name.startswith("="):
        raise UnresolvedError(f"Unable to compile: {quoted(name[1:].strip())}")
    if name not in scope:
        raise UnresolvedError(f"Unable to resolve: {quoted(name)}")
    return scope[name]


def _texts(value: Any) -> Iterator[str]:
    """The strings in `value` that hold references."""
    if isinstance(value, str):
        if "{{" in value:
            yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _read(result: str) -> Any:
    try:
        return read(result)
    except ValueError as error:
        raise UnresolvedError(str(error)) from None


def _aggregate(values: list[str]) -> str:
    """A JSON list of the values; where all of them are JSON objects or lists, of what they say."""
    try:
        said = [from_json(value) for value in values]
    except FaultError:
        return to_json(values)
    return to_json(said if all(isinstance(item, (dict, list)) for item in said) else values)
