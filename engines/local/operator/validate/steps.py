"""Checks of steps templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..paths import Path
from .arguments import arguments
from .calls import aggregates, condition, given, has_exit_hook, hooks, items, only_of_leaves, output_names, own_inputs
from .problem import FIELD, Problem, Template, wrong_name
from .references import Scope, unresolved

if TYPE_CHECKING:
    from .templates import Walk


def check(walk: Walk, template: Template, path: Path, scope: Scope) -> Iterator[Problem]:
    """`scope` grows by the outputs of the steps."""
    where = f"templates.{template.get('name', '')}"
    yield from only_of_leaves(template, where, path)
    seen: set[str] = set()
    for index, group in enumerate(template["steps"] or []):
        for at, step in enumerate(group or []):
            place: Path = (*path, "steps", index, at)
            name, position = step.get("name") or "", f"{where}.steps[{index}]"
            if not name:
                yield Problem(place, f"{position}.name is required")
                continue
            if name in seen:
                yield Problem((*place, "name"), f"{position}.name '{name}' is not unique")
            elif found := wrong_name(name, FIELD):
                yield Problem((*place, "name"), f"{position}.name '{name}' is invalid: {found}")
            seen.add(name)
            step_where, prefix = f"{position}.{name}", f"steps.{name}"
            scope.names.add(f"{prefix}.status")
            names, problem = items(step)
            scope.names |= names
            if problem:
                yield Problem(place, f"{step_where} {problem}")
            yield from arguments(step, f"{step_where}.arguments", place)
            yield from (found.through(step_where) for found in walk.call(step, place))
            known = walk.find(step, place)
            outputs = output_names(walk, known[0] if known else None, prefix, scope, loop=aggregates(step))
            if has_exit_hook(step):
                scope.names |= outputs
            yield from hooks(step, step_where, place)
            yield from condition(step, step_where, place)
            yield from unresolved(step, place, Scope(own_inputs(step), scope), f"{where}.steps")
            scope.names |= outputs
            yield from (found.through(step_where) for found in walk.supplied(step, place, given(step)))
