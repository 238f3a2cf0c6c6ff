"""Checks of DAG templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..depends import OF_ITEMS, RESULTS, CycleError, Graph, items_results
from ..expressions import Fields
from ..loops import loops
from ..paths import Path
from .arguments import arguments
from .calls import aggregates, condition, given, hooks, items, only_of_leaves, output_names, own_inputs
from .conditions import unreadable
from .problem import Problem, Template, artifacts, named, parameters
from .references import Scope, is_reference, unresolved

if TYPE_CHECKING:
    from .templates import Walk

_REFERENCE = "{{tasks."
_NO_ITEMS = "uses an items-based condition such as .AnySucceeded or .AllFailed but does not contain any items"


def check(walk: Walk, template: Template, path: Path, scope: Scope) -> Iterator[Problem]:
    """`scope` grows by the outputs of the tasks."""
    where = f"templates.{template.get('name', '')}"
    yield from only_of_leaves(template, where, path)
    tasks = template["dag"].get("tasks") or []
    if not tasks:
        yield Problem((*path, "dag"), f"{where} must have at least one task")
        return
    path = (*path, "dag")
    places: dict[str, Path] = {}
    twice = []
    for index, task in enumerate(tasks):
        name, place = task.get("name") or "", (*path, "tasks", index)
        if name in places:
            twice.append(Problem((*place, "name"), f"{where} sorting failed: duplicated nodeName {name}"))
        places.setdefault(name, place)
    wrong = [*twice, *named(tasks, f"{where}.tasks", (*path, "tasks"), unique=False)]
    yield from wrong
    if wrong:
        return
    graph = Graph(tasks)
    broken = list(_dependencies(graph, where, places))
    yield from broken
    if not broken:
        order = graph.order(list(graph.tasks))
        yield from _Dag(walk, graph, where, places, scope).check(order)
        yield from _targets(template, graph, where, (*path, "target"), scope)


def _dependencies(graph: Graph, where: str, places: Mapping[str, Path]) -> Iterator[Problem]:
    """Without a problem here, the tasks can be brought into an order."""
    unknown = False
    for name, others in graph.waits_for.items():
        for other in others:
            if other not in graph.tasks:
                unknown = True
                yield Problem(_waits(graph, name, places), f"{where} sorting failed: invalid dependency {other}")
    if unknown:
        return
    try:
        graph.order(list(graph.tasks))
    except CycleError as error:
        place = _waits(graph, error.cycle[0], places)
        yield Problem(place, f"{where} sorting failed: graph with cycle")
        way = "->".join([*error.cycle, error.cycle[0]])
        yield Problem(place, f"{where}.tasks dependency cycle detected: {way}")


def _waits(graph: Graph, name: str, places: Mapping[str, Path]) -> Path:
    return (*places[name], "depends" if graph.tasks[name].get("depends") else "dependencies")


def _targets(template: Template, graph: Graph, where: str, path: Path, scope: Scope) -> Iterator[Problem]:
    target = template["dag"].get("target") or ""
    yield from unresolved(target, path, scope, f"{where}.targets")
    for name in target.split(" ") if target else ():
        if not is_reference(name) and name not in graph.tasks:
            yield Problem(path, f"{where}.targets: target '{name}' is not defined")


class _Dag:
    def __init__(self, walk: Walk, graph: Graph, where: str, places: Mapping[str, Path], scope: Scope) -> None:
        self.walk, self.graph, self.where, self.places, self.scope = walk, graph, where, places, scope
        self.with_depends = any(task.get("depends") for task in graph.tasks.values())
        self.waited_for = {name: frozenset(others) for name, others in graph.waits_for.items()}

    def check(self, order: list[str]) -> Iterator[Problem]:
        for name in order:
            yield from self._task(name)
        for name in order:
            yield from self._call(name)

    def _task(self, name: str) -> Iterator[Problem]:
        """How a task stands among the others; what the templates of all of them need is known only after this."""
        task, place, where = self.graph.tasks[name], self.places[name], f"{self.where}.tasks.{name}"
        if (self.with_depends or task.get("dependencies")) and name[0].isdigit():
            said = "name cannot begin with a digit when using either 'depends' or 'dependencies'"
            yield Problem((*place, "name"), f"{where} {said}")
        if self.with_depends and task.get("dependencies"):
            said = "cannot use both 'depends' and 'dependencies' in the same DAG template"
            yield Problem((*place, "dependencies"), f"{self.where} {said}")
        if self.with_depends and task.get("continueOn"):
            said = "cannot use 'continueOn' when using 'depends'. Instead use 'dep-task.Failed'/'dep-task.Errored'"
            yield Problem((*place, "continueOn"), f"{self.where} {said}")
        yield from (found.through(where) for found in self.walk.call(task, place))
        self.scope.names |= self._outputs(name, loop=aggregates(task))
        for other, result in items_results(task.get("depends") or ""):
            if result not in RESULTS:
                message = f"{where} task result '{result}' for task '{other}' is invalid"
                yield Problem((*place, "depends"), message)
            elif result in OF_ITEMS and not loops(self.graph.tasks.get(other, {})):
                # both names are the other task's, as Argo has it
                yield Problem((*place, "depends"), f"{self.where}.tasks.{other} dependency '{other}' {_NO_ITEMS}")
        if self.graph.logic[name]:
            results = Fields(dict.fromkeys(RESULTS, False))
            known = {other.replace("-", "_"): results for other in self.graph.waits_for[name]}
            logic = self.graph.logic[name].replace("-", "_")
            yield from unreadable(logic, f"{where}.depends", (*place, "depends"), known)
        yield from condition(task, where, place)
        for found in hooks(task, where, place):
            if found.ours:  # Argo asks of steps alone that each has an expression
                yield found
        if name == "onExit":
            said = "'onExit' is the name of the exit handler's node; the embedded engine needs another name"
            yield Problem((*place, "name"), f"{where}: {said}", ours=True, only_here=True)

    def _call(self, name: str) -> Iterator[Problem]:
        """What a task hands to its template."""
        task, place, where = self.graph.tasks[name], self.places[name], f"{self.where}.tasks.{name}"
        if task.get("hooks"):
            self.scope.names.add(f"tasks.{name}.status")
        names, problem = items(task)
        if problem:
            yield Problem(place, f"{where} {problem}")
        scope = Scope(names | own_inputs(task), self.scope)
        scope.answers = lambda tag: self._is_status(name, tag)
        yield from unresolved(task, place, scope, where)
        yield from arguments(task, f"{where}.arguments", place)
        yield from self._early(name, task, place, where)
        yield from (found.through(where) for found in self.walk.supplied(task, place, given(task)))

    def _is_status(self, name: str, tag: str) -> bool:
        """Whether `tag` is the status of a task that `name` waits for."""
        root, _, rest = tag.partition(".")
        other, _, last = rest.rpartition(".")
        return root == "tasks" and last == "status" and other in self.graph.tasks and self._is_ancestor(other, name)

    def _is_ancestor(self, other: str, name: str) -> bool:
        return other in self.waited_for[name] or other in self.graph.ancestors(name)

    def _early(self, name: str, task: Mapping[str, Any], place: Path, where: str) -> Iterator[Problem]:
        """Arguments out of tasks that may not have run yet."""
        for kind, values in (
            ("parameter", [(p, p.get("value")) for p in parameters(task, "arguments")]),
            ("artifact", [(a, a.get("from")) for a in artifacts(task, "arguments")]),
        ):
            for index, (argument, value) in enumerate(values):
                other = str(value)[len(_REFERENCE) :].split(".")[0] if str(value).startswith(_REFERENCE) else ""
                if other and not self._is_ancestor(other, name):
                    at = (*place, "arguments", f"{kind}s", index)
                    yield Problem(at, f"{where} missing dependency '{other}' for {kind} '{argument.get('name')}'")

    def _outputs(self, name: str, *, loop: bool) -> set[str]:
        task = self.graph.tasks[name]
        found = self.walk.find(task, self.places[name])
        return output_names(self.walk, found[0] if found else None, f"tasks.{name}", self.scope, loop=loop)
