"""What references may refer to: the Workflow's own values, and the outputs of its nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import artifacts
from .expressions import ExpressionError, evaluate, show
from .loops import loop_index
from .names import pod_name, seconds, template_name, text
from .nodes import Node, Nodes
from .phases import SUCCEEDED, UNSUCCESSFUL
from .templates import EVERYTHING, UnresolvedError, expand, substitute

_WORD = re.compile(r"[\w-]+")


def workflow_scope(workflow: Mapping[str, Any], now: float) -> dict[str, str]:
    """The `workflow.*` values. `workflow.status` is the last pass's; the exit handler sees that of `finished_scope`."""
    metadata, spec, status = workflow["metadata"], workflow["spec"], workflow.get("status") or {}
    started = seconds(status.get("startedAt")) or now
    created = metadata.get("creationTimestamp") or ""
    scope = {
        "workflow.name": metadata["name"],
        "workflow.namespace": metadata.get("namespace") or "",
        "workflow.uid": metadata.get("uid") or "",
        "workflow.mainEntrypoint": spec.get("entrypoint") or "",
        "workflow.serviceAccountName": spec.get("serviceAccountName") or "",
        "workflow.creationTimestamp": created,
        "workflow.creationTimestamp.RFC3339": created,
        "workflow.creationTimestamp.s": str(int(seconds(created))),
        "workflow.status": status.get("phase") or "",
        "workflow.duration": f"{max(now - started, 0.0):f}",
    }
    if spec.get("priority") is not None:
        scope["workflow.priority"] = str(spec["priority"])
    for kind in ("labels", "annotations"):
        values = metadata.get(kind) or {}
        scope[f"workflow.{kind}"] = scope[f"workflow.{kind}.json"] = _json(values)
        scope.update({f"workflow.{kind}.{name}": text(value) for name, value in values.items()})
    parameters = (spec.get("arguments") or {}).get("parameters") or []
    scope["workflow.parameters"] = scope["workflow.parameters.json"] = _json(parameters)
    scope.update({f"workflow.parameters.{p['name']}": text(p["value"]) for p in parameters if "value" in p})
    outputs = (status.get("outputs") or {}).get("parameters") or []
    scope.update({f"workflow.outputs.parameters.{p['name']}": text(p["value"]) for p in outputs if "value" in p})
    return scope


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
    return {"workflow.status": phase, "workflow.failures": json.dumps(_json(failures))}


def input_scope(inputs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    scope = {f"inputs.parameters.{p['name']}": text(p["value"]) for p in inputs}
    scope["inputs.parameters"] = _json(list(inputs))
    return scope


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
    scope = {f"{prefix}.outputs.result": _json(results), f"{prefix}.outputs.parameters": _json(each)}
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
    """The `outputs` of a DAG or steps template, out of those of its tasks. Raises UnresolvedError, ExpressionError."""
    declared = (template.get("outputs") or {}).get("parameters") or []
    found = []
    for output in declared:
        source = output.get("valueFrom") or {}
        try:
            if source.get("expression"):
                value = show(evaluate(source["expression"], expand(scope)))
            else:
                value = substitute(source.get("parameter") or "", scope, EVERYTHING)
        except (UnresolvedError, ExpressionError):
            if "default" not in source:
                raise
            value = text(source["default"])
        found.append({**{k: v for k, v in output.items() if k != "valueFrom"}, "value": value})
    files = artifacts.outputs(template, known, scope)
    return {name: several for name, several in (("parameters", found), ("artifacts", files)) if several} or None


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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
        return json.loads(result)
    except ValueError:
        first = result.lstrip()[:1]
        raise UnresolvedError(
            f"invalid character '{first}' looking for beginning of value" if first else "unexpected end of JSON input"
        ) from None


def _aggregate(values: list[str]) -> str:
    """A JSON list of the values; where all of them are JSON objects or lists, of what they say."""
    try:
        read = [json.loads(value) for value in values]
    except ValueError:
        return _json(values)
    return _json(read if all(isinstance(item, (dict, list)) for item in read) else values)
