"""Checks of a Workflow before its first pass: what Argo's controller refuses, and what can't go well here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .....workflows.shapes import mapping
from ..fields import findings
from ..jsontext import text
from ..paths import Path, dotted
from ..scope import workflow_scope
from . import retries
from .arguments import arguments
from .calls import hooks
from .problem import Problem, artifacts, named, parameters
from .references import ANY_ARTIFACT, is_reference
from .templates import Walk

__all__ = ["Path", "Problem", "invalid", "mistakes", "problems"]

_MOST_OF_A_NAME = 63
_POD_GC = ("", "OnPodCompletion", "OnPodSuccess", "OnWorkflowCompletion", "OnWorkflowSuccess")


def invalid(workflow: Mapping[str, Any]) -> list[str]:
    """What is wrong with a Workflow of supported fields, the first as Argo says it. Empty: nothing."""
    found = sorted(_check(workflow, lint=False), key=lambda problem: problem.ours)
    return [f"{problem.route}{problem.message}" for problem in found]


def problems(workflow: Mapping[str, Any], *, lint: bool = False) -> list[tuple[Path, str]]:
    """As `invalid`, each with the path to what is wrong: `("spec", "templates", 2, "dag", "tasks", 0, "template")`.

    With `lint`, parameters of the Workflow may still have no value.
    """
    return [(problem.path, problem.message) for problem in mistakes(workflow, lint=lint)]


def mistakes(workflow: Mapping[str, Any], *, lint: bool = False) -> list[Problem]:
    """As `problems`, each with who minds it."""
    return list(_check(workflow, lint=lint))


def _check(workflow: Mapping[str, Any], *, lint: bool) -> Iterator[Problem]:
    malformed = [found for found in findings(workflow) if found.malformed]
    if malformed:
        yield from (Problem(found.path, f"{dotted(found.path)} {found.why}") for found in malformed)
        return
    metadata, spec = workflow.get("metadata") or {}, workflow.get("spec") or {}
    name = metadata.get("name") or ""
    if not name and not metadata.get("generateName"):
        yield Problem(("metadata",), "metadata.name is required")
        return
    if len(name) > _MOST_OF_A_NAME:
        said = f'workflow name "{name}" must not be more than 63 characters long (currently {len(name)})'
        yield Problem(("metadata", "name"), said)
        return
    yield from named(spec.get("templates"), "spec.templates", ("spec", "templates"))
    yield from arguments(spec, "spec.arguments", ("spec",), empty=lint)
    if not spec.get("entrypoint"):
        yield Problem(("spec",), "spec.entrypoint is required")
        return
    yield from _templates(workflow, spec)
    yield from retries.strategy(spec.get("retryStrategy") or {}, "spec", ("spec", "retryStrategy"))
    yield from hooks(spec, "hooks", ("spec",))
    strategy = mapping(spec.get("podGC")).get("strategy") or ""
    if strategy not in _POD_GC:
        yield Problem(("spec", "podGC", "strategy"), f"podGC.strategy unknown strategy '{strategy}'")


def _templates(workflow: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Problem]:
    walk = Walk(workflow, _globals(workflow))
    valued = (p for p in parameters(spec, "arguments") if p.get("value") is not None)
    walk.globals.values = {f"workflow.parameters.{p.get('name')}": text(p["value"]) for p in valued}
    given = {f"parameters.{p.get('name')}" for p in parameters(spec, "arguments")}
    given |= {f"artifacts.{a.get('name')}" for a in (spec.get("arguments") or {}).get("artifacts") or []}
    for key in ("entrypoint", "onExit"):
        if key == "onExit" and spec.get(key):
            walk.globals.names |= _known_at_exit(spec)
        if spec.get(key):
            for found in walk.call({"template": spec[key], "arguments": {}}, ("spec",), given):
                yield found._replace(path=("spec", key)) if found.path == ("spec", "template") else found
    for template in spec.get("templates") or []:
        if name := template.get("name"):
            yield from (found.through(f"templates.{name}") for found in walk.call({"template": name}, ("spec",)))


def _known_at_exit(spec: Mapping[str, Any]) -> set[str]:
    named = [a.get("globalName") or "" for t in spec.get("templates") or [] for a in artifacts(t, "outputs")]
    return {"workflow.failures", *([ANY_ARTIFACT] if any(is_reference(name) for name in named) else [])}


def _globals(workflow: Mapping[str, Any]) -> set[str]:
    metadata, spec = {"name": "", **workflow["metadata"]}, workflow["spec"]
    plain = {key: value for key, value in spec.items() if key != "workflowMetadata"}
    known = set(workflow_scope({**workflow, "metadata": metadata, "spec": plain}, 0.0))
    known |= {f"workflow.parameters.{p.get('name')}" for p in parameters(spec, "arguments")}
    if not parameters(spec, "arguments"):
        known -= {"workflow.parameters", "workflow.parameters.json"}
    extra = spec.get("workflowMetadata") or {}
    for kind, *sources in (("labels", "labels", "labelsFrom"), ("annotations", "annotations")):
        for source in sources:
            known |= {f"workflow.{kind}.{name}" for name in extra.get(source) or {}}
    return known
