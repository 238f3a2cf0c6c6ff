"""One walk over a Workflow's templates, in the order in which Argo's controller comes to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .....workflows.shapes import mapping
from ..paths import Path
from ..resolution import LOCAL, scope_of, stored_name
from . import dag, leaf, metrics, outputs, retries, steps
from .arguments import has_location
from .problem import PARAMETER, Problem, Template, artifacts, named, parameters
from .references import Scope, unresolved

KINDS = (
    "container", "containerSet", "steps", "script", "resource", "dag", "suspend", "data", "http", "plugin",
)  # fmt: skip
PODS = ("container", "containerSet", "script", "resource", "data")

_UNTIMED = {"dag": "DAG", "steps": "Steps", "suspend": "Suspend"}
_CHOICES = "choose one of: container, containerSet, steps, script, resource, dag, suspend, template, template ref"
_DEEPEST = 100  # calls within calls; deeper ones are walked on their own, and don't run either
_LAST = ("retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message")


class Walk:
    """The templates of a Workflow, what is known everywhere, and how far the walk has come."""

    def __init__(self, workflow: Mapping[str, Any], known: set[str]) -> None:
        self.spec: Mapping[str, Any] = workflow["spec"]
        self.globals = Scope(known)
        self._places: dict[str, int] = {}
        for index, template in enumerate(self.spec.get("templates") or []):
            self._places.setdefault(template.get("name") or "", index)
        self._stored: Mapping[str, Template] = (workflow.get("status") or {}).get("storedTemplates") or {}
        self._home = LOCAL  # where the names in the template that is looked at are looked up
        self._around: set[str] = set()  # inputs that an inline template in it sees besides its own
        self._checked: set[Path] = set()
        self._depth = 0

    def find(self, caller: Mapping[str, Any], path: Path) -> tuple[Template, Path] | None:
        """The template that a task or step runs, and where it is. None: it isn't known."""
        if caller.get("inline") is not None:
            return caller["inline"], (*path, "inline")
        if name := stored_name(self._home, caller):
            return (self._stored[name], ("status", "storedTemplates", name)) if name in self._stored else None
        index = self._places.get(caller.get("template") or "")
        return None if index is None else (self.spec["templates"][index], ("spec", "templates", index))

    def call(self, caller: Mapping[str, Any], path: Path, given: set[str] | None = None) -> Iterator[Problem]:
        """Checks the template that `caller` runs. `given`: the names of its arguments, None where they don't matter."""
        for found in self._call(caller, path, given):
            elsewhere = found.path[0] == "status" and path[0] != "status"
            yield found._replace(path=(*path, "templateRef")) if elsewhere else found

    def _call(self, caller: Mapping[str, Any], path: Path, given: set[str] | None) -> Iterator[Problem]:
        found = self.find(caller, path)
        if found is None or (caller.get("templateRef") and caller.get("template")):
            yield from _unknown(caller, path)
            return
        template, where = found
        new = where not in self._checked and self._depth < _DEEPEST
        if new:
            self._checked.add(where)
            yield from self._head(template, where)
        if given is not None:
            yield from _supplied(template, caller, path, given)
        if new:
            home, around = self._home, self._around
            self._home = scope_of(home, caller)
            seen = around if caller.get("inline") is not None else set()
            self._around = seen | {f"inputs.parameters.{p.get('name')}" for p in parameters(template, "inputs")}
            self._depth += 1
            yield from self._body(template, where)
            self._depth -= 1
            self._home, self._around = home, around

    def supplied(self, caller: Mapping[str, Any], path: Path, given: set[str]) -> Iterator[Problem]:
        """Checks that the template that `caller` runs gets the inputs it needs; `given` are the arguments' names."""
        found = self.find(caller, path)
        if found is not None:
            yield from _supplied(found[0], caller, path, given)

    def _head(self, template: Template, path: Path) -> Iterator[Problem]:
        """What a template is, before it is known what it is given."""
        where = f"templates.{template.get('name', '')}"
        yield from retries.strategy(template.get("retryStrategy") or {}, where, (*path, "retryStrategy"))
        kinds = _kinds(template)
        if len(kinds) != 1:
            message = f"{where} multiple template types specified. {_CHOICES}"
            yield Problem(path, message if kinds else f"template '{template.get('name', '')}' type is unknown")
            return
        yield from _inputs(template, kinds[0], where, (*path, "inputs"))

    def _body(self, template: Template, path: Path) -> Iterator[Problem]:
        kinds = _kinds(template)
        if len(kinds) != 1:
            return
        yield from _timeout(template, kinds[0], (*path, "timeout"))
        scope = self._scope(template, kinds[0])
        if kinds[0] == "dag":
            yield from dag.check(self, template, path, scope)
        elif kinds[0] == "steps":
            yield from steps.check(self, template, path, scope)
        else:
            yield from unresolved(template, path, scope, f"templates.{template.get('name', '')}:")
            yield from leaf.check(self.spec, template, path)
        yield from outputs.check(template, kinds[0], path, scope)
        yield from metrics.check(template, path)

    def _scope(self, template: Template, kind: str) -> Scope:
        scope = Scope(set(self._around), self.globals)
        for name, declared in (("parameters", parameters), ("artifacts", artifacts)):
            scope.names |= {f"inputs.{name}.{needed.get('name')}" for needed in declared(template, "inputs")}
        if parameters(template, "inputs"):
            scope.names.add("inputs.parameters")
        scope.names |= {f"inputs.artifacts.{a.get('name')}.path" for a in artifacts(template, "inputs")}
        if kind in PODS:
            scope.names.add("pod.name")
        if template.get("retryStrategy"):
            scope.names |= set(_LAST)
        return scope


def _unknown(caller: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    reference, name = caller.get("templateRef"), caller.get("template")
    if reference is None:
        said = f"template name '{name}' undefined" if name else "failed to get a template"
        yield Problem((*path, "template") if name else path, said)
    elif name:
        yield Problem((*path, "template"), "template name cannot be specified with templateRef.")
    elif not reference.get("name"):
        yield Problem((*path, "templateRef"), "resource name is required")
    elif not reference.get("template"):
        yield Problem((*path, "templateRef"), "template name is required")
    elif "{{" not in f"{reference['name']}{reference['template']}":  # else it is known only when it runs
        said = f"template reference {reference['name']}.{reference['template']} not found"
        yield Problem((*path, "templateRef"), said)


def _kinds(template: Template) -> list[str]:
    return [kind for kind in KINDS if template.get(kind) is not None]


def _supplied(template: Template, caller: Mapping[str, Any], path: Path, given: set[str]) -> Iterator[Problem]:
    for kind, declared in (("parameters", parameters), ("artifacts", artifacts)):
        for needed in declared(template, "inputs"):
            if f"{kind}.{needed.get('name')}" not in given and not _has_value(needed):
                at = (*path, "arguments") if "arguments" in caller else path
                said = f"inputs.{kind}.{needed.get('name')} was not supplied"
                yield Problem(at, f"templates.{template.get('name', '')} {said}")


def _has_value(declared: Mapping[str, Any]) -> bool:
    if declared.get("value") is not None or declared.get("default") is not None:
        return True
    from_a_map = mapping(declared.get("valueFrom")).get("configMapKeyRef") is not None
    return from_a_map or bool(declared.get("optional")) or has_location(declared)


def _inputs(template: Template, kind: str, where: str, path: Path) -> Iterator[Problem]:
    yield from named(parameters(template, "inputs"), f"{where}.inputs.parameters", (*path, "parameters"), PARAMETER)
    yield from named(artifacts(template, "inputs"), f"{where}.inputs.artifacts", (*path, "artifacts"), PARAMETER)
    for index, artifact in enumerate(artifacts(template, "inputs")):
        at = (*path, "artifacts", index)
        yield from outputs.artifact_path(template, kind, "inputs", artifact, at)
        if artifact.get("from"):
            name = f"{where}.inputs.artifacts.{artifact.get('name', '')}"
            yield Problem((*at, "from"), f"{name}.from not valid in inputs")
    for index, container in enumerate(template.get("initContainers") or []):
        if not container.get("name"):
            yield Problem((*path[:-1], "initContainers", index), "initContainers must all have container name")


def _timeout(template: Template, kind: str, path: Path) -> Iterator[Problem]:
    timeout = str(template.get("timeout") or "")
    if timeout and kind in _UNTIMED:
        yield Problem(path, f"{_UNTIMED[kind]} template doesn't support timeout field")
    elif re.fullmatch(r"[-+]?\d+", timeout):
        yield Problem(path, f"{template.get('name', '')} has invalid duration format in timeout")
