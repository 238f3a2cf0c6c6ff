"""Checks of a Workflow before its first pass: names that lead nowhere, references that nothing can answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .depends import OF_ITEMS, RESULTS, Graph, items_results
from .expressions import ExpressionError, names, parse
from .loops import loops
from .retry import duration
from .scope import workflow_scope

KINDS = ("container", "resource", "dag", "steps")

_FIELD_NAME = re.compile(r"[a-zA-Z0-9_][-a-zA-Z0-9_]*")
_MOST_OF_A_NAME = 63
_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_CHECKED = ("item.", "steps.", "inputs.", "outputs.", "pod.", "workflow.", "tasks.")
_LATER = ("workflow.creationTimestamp", "workflow.duration", "tasks.name", "steps.name", "node.name")
_LAST = ("retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message")

Scope = set[str]


def invalid(workflow: Mapping[str, Any]) -> list[str]:
    """What is wrong with a Workflow of supported fields, in Argo's words where it has any. Empty: nothing."""
    name = (workflow.get("metadata") or {}).get("name")
    if not name:
        return ["metadata.name is required"]
    if len(name) > _MOST_OF_A_NAME:
        return [f'workflow name "{name}" must not be more than 63 characters long (currently {len(name)})']
    spec = workflow.get("spec") or {}
    if not spec.get("entrypoint"):
        return ["spec.entrypoint is required"]
    return list(_Check(workflow).problems())


class _Check:
    def __init__(self, workflow: Mapping[str, Any]) -> None:
        self.workflow, self.spec = workflow, workflow["spec"]
        self.templates: dict[str, Mapping[str, Any]] = {}
        self.globals: Scope = set()

    def problems(self) -> Iterator[str]:
        for index, template in enumerate(self.spec.get("templates") or []):
            name = template.get("name")
            if not name:
                yield f"spec.templates[{index}].name is required"
            elif name in self.templates:
                yield f"spec.templates[{index}].name '{name}' is not unique"
            else:
                self.templates[name] = template
        for argument in (self.spec.get("arguments") or {}).get("parameters") or []:
            if "value" not in argument:
                yield f"spec.arguments.{argument['name']}.value is required"
        self.globals = {*workflow_scope(self.workflow, 0.0), "workflow.failures"}
        for key in ("entrypoint", "onExit"):
            if self.spec.get(key) and self.spec[key] not in self.templates:
                yield f"template name '{self.spec[key]}' undefined"
        if self.spec.get("retryStrategy"):
            yield from self._strategy("spec", self.spec["retryStrategy"])
        for name, template in self.templates.items():
            yield from self._template(name, template)

    def _template(self, name: str, template: Mapping[str, Any]) -> Iterator[str]:
        where = f"templates.{name}"
        kinds = [kind for kind in KINDS if kind in template]
        if len(kinds) != 1:
            yield f"{where} needs exactly one of {', '.join(KINDS)}"
            return
        scope = self.globals | {f"inputs.parameters.{p['name']}" for p in _parameters(template, "inputs")}
        scope.add("inputs.parameters")
        if strategy := template.get("retryStrategy") or self.spec.get("retryStrategy"):
            scope |= set(_LAST)
            if template.get("retryStrategy"):
                yield from self._strategy(where, strategy)
        if kinds[0] == "dag":
            yield from self._dag(where, template, scope)
        elif kinds[0] == "steps":
            yield from self._steps(where, template, scope)
        else:
            yield from self._leaf(where, template, scope)

    def _leaf(self, where: str, template: Mapping[str, Any], scope: Scope) -> Iterator[str]:
        for output in _parameters(template, "outputs"):
            path = (output.get("valueFrom") or {}).get("path")
            if not path:
                what = f"{where}.outputs.parameters.{output['name']}.path"
                yield f"{what} must be specified for {_kind(template)} templates"
            scope.add(f"outputs.parameters.{output['name']}.path")
        yield from _unresolved(where, template, scope | {"pod.name"})
        if "container" not in template:
            return
        container = template["container"]
        if not container.get("image"):
            yield f"{where}.container.image may not be empty"
        if not container.get("command"):
            yield f"{where}.container.command may not be empty: images' own commands are not known here"
        known = {v["name"] for v in [*(self.spec.get("volumes") or []), *(template.get("volumes") or [])]}
        known |= {claim["metadata"]["name"] for claim in self.spec.get("volumeClaimTemplates") or []}
        for init in template.get("initContainers") or []:
            if not init.get("name"):
                yield f"{where}.initContainers must all have container name"
        for part in [container, *(template.get("initContainers") or [])]:
            for mount in part.get("volumeMounts") or []:
                if mount["name"] not in known:
                    yield f"{where}: volume '{mount['name']}' not found in workflow spec"

    def _dag(self, where: str, template: Mapping[str, Any], scope: Scope) -> Iterator[str]:
        tasks = template["dag"].get("tasks") or []
        if not tasks:
            yield f"{where} must have at least one task"
            return
        problems = list(_names(f"{where}.tasks", tasks))
        with_depends = any(task.get("depends") for task in tasks)
        if problems:
            yield from problems
            return
        graph = Graph(tasks)
        for task in tasks:
            problems += self._dependencies(f"{where}.tasks.{task['name']}", task, graph, with_depends)
        for target in (template["dag"].get("target") or "").split():
            if target not in graph.tasks:
                problems.append(f"{where}.targets: target '{target}' is not defined")
        if problems:
            yield from problems
            return
        try:
            graph.order(list(graph.tasks))
        except ValueError as error:
            yield f"{where}: {error}"
            return
        for task in tasks:
            own = set(scope)
            for ancestor in graph.ancestors(task["name"]):
                own |= self._outputs(f"tasks.{ancestor}", graph.tasks[ancestor])
            yield from self._call(f"{where}.tasks.{task['name']}", task, own)
        everything = scope.union(*(self._outputs(f"tasks.{name}", task) for name, task in graph.tasks.items()))
        yield from _unresolved(f"{where}.outputs", template.get("outputs"), everything)

    def _dependencies(self, where: str, task: Mapping[str, Any], graph: Graph, with_depends: bool) -> Iterator[str]:
        name = task["name"]
        if name == "onExit":
            yield f"{where}: 'onExit' is the name of the exit handler's node; the embedded engine needs another name"
        if with_depends and task.get("dependencies"):
            yield f"{where} cannot use both 'depends' and 'dependencies' in the same DAG template"
        if with_depends and task.get("continueOn"):
            yield f"{where} cannot use 'continueOn' when using 'depends'. Instead use 'TASK.Failed', 'TASK.Errored'"
        if graph.waits_for[name] and name[0].isdigit():
            yield f"{where} name cannot begin with a digit when using either 'depends' or 'dependencies'"
        for other in graph.waits_for[name]:
            if other not in graph.tasks:
                yield f"{where} dependency '{other}' not defined"
        for other, result in items_results(task.get("depends") or ""):
            if result not in RESULTS:
                yield f"{where} task result '{result}' for task '{other}' is invalid"
            elif result in OF_ITEMS and not loops(graph.tasks.get(other, {})):
                yield f"{where} dependency '{other}' uses an items-based condition, {result}, but has no items"
        if graph.logic[name]:
            yield from _unreadable(f"{where}.depends", graph.logic[name].replace("-", "_"))

    def _steps(self, where: str, template: Mapping[str, Any], scope: Scope) -> Iterator[str]:
        groups = template["steps"] or []
        problems = list(_names(f"{where}.steps", [step for group in groups for step in group]))
        if problems:
            yield from problems
            return
        for index, group in enumerate(groups):
            for step in group:
                yield from self._call(f"{where}.steps[{index}].{step['name']}", step, scope)
            for step in group:
                scope = scope | self._outputs(f"steps.{step['name']}", step)
        yield from _unresolved(f"{where}.outputs", template.get("outputs"), scope)

    def _call(self, where: str, task: Mapping[str, Any], scope: Scope) -> Iterator[str]:
        """A task or step: the template it runs, and what it hands to it."""
        template = self.templates.get(task.get("template") or "")
        if template is None:
            yield f"{where} template name '{task.get('template')}' undefined"
            return
        if sum(key in task for key in ("withItems", "withParam", "withSequence")) > 1:
            yield f"{where} only one of withItems, withParam, withSequence can be specified"
        given = {argument["name"] for argument in _parameters(task, "arguments") if "value" in argument}
        for declared in _parameters(template, "inputs"):
            if declared["name"] not in given and "value" not in declared and "default" not in declared:
                yield f"{where} templates.{task['template']} inputs.parameters.{declared['name']} was not supplied"
        anything = ("item",) if loops(task) else ()
        yield from _unresolved(where, task, scope, anything)

    def _outputs(self, prefix: str, task: Mapping[str, Any]) -> Scope:
        template = self.templates.get(task.get("template") or "", {})
        found = {f"{prefix}.{key}" for key in ("id", "startedAt", "finishedAt", "hostNodeName", "status", "exitCode")}
        found |= {f"{prefix}.outputs.parameters.{p['name']}" for p in _parameters(template, "outputs")}
        return found | ({f"{prefix}.outputs.parameters"} if loops(task) else set())

    def _strategy(self, where: str, strategy: Mapping[str, Any]) -> Iterator[str]:
        limit = str(strategy.get("limit", 0))
        if not limit.lstrip("-").isdigit() and "{{" not in limit:
            yield f"{where}.retryStrategy.limit: value '{limit}' cannot be resolved to an int"
        backoff = strategy.get("backoff") or {}
        if backoff and not backoff.get("duration"):
            yield f"{where}.retryStrategy.backoff: no base duration specified for retryStrategy"
        for key in ("duration", "maxDuration", "cap"):
            try:
                if "{{" not in str(backoff.get(key) or ""):
                    duration(str(backoff.get(key) or 0))
            except ValueError as error:
                yield f"{where}.retryStrategy.backoff.{key}: {error}"
        factor = str(backoff.get("factor") or 1)
        if not factor.isdigit() and "{{" not in factor:
            yield f"{where}.retryStrategy.backoff.factor: value '{factor}' cannot be resolved to an int"
        expression = strategy.get("expression") or ""
        if expression and "{{" not in expression:
            yield from _unreadable(f"{where}.retryStrategy.expression", expression, set(_LAST))


def _parameters(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return (holder.get(key) or {}).get("parameters") or []


def _kind(template: Mapping[str, Any]) -> str:
    return "Container" if "container" in template else "Resource"


def _names(where: str, tasks: list[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for index, task in enumerate(tasks):
        name = task.get("name")
        if not name:
            yield f"{where}[{index}].name is required"
        elif not _FIELD_NAME.fullmatch(name):
            yield f"{where}[{index}].name: '{name}' is invalid: letters, digits, '-' and '_' only"
        elif name in seen:
            yield f"{where}[{index}].name '{name}' is not unique"
        seen.add(name or "")


def _unreadable(where: str, expression: str, known: Scope | None = None) -> Iterator[str]:
    try:
        used = names(parse(expression))
    except ExpressionError as error:
        yield f"{where}: {error}"
        return
    for name in sorted(used - known) if known is not None else []:
        yield f"{where}: unknown name {name}"


def _unresolved(where: str, value: Any, scope: Scope, roots: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(value, str):
        for match in _TAG.finditer(value) if "{{" in value else ():
            tag = match[1].strip()
            if tag.startswith("=") or "{{" in tag or not tag.startswith(_CHECKED) or tag in scope:
                continue
            if not tag.startswith(_LATER) and tag.partition(".")[0] not in roots:
                yield f"{where} failed to resolve {{{{{match[1]}}}}}"
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _unresolved(where, inner, scope, roots)
    elif isinstance(value, list):
        for inner in value:
            yield from _unresolved(where, inner, scope, roots)
