"""References: which of them can be answered at a place, and those that can't."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..paths import Path
from .conditions import unreadable
from .problem import Problem

ANY_ITEM, ANY_PARAMETER, ANY_ARTIFACT = "item.*", "workflow.outputs.parameters.*", "workflow.outputs.artifacts.*"

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PARAMETER = re.compile(r"\{\{[-a-zA-Z0-9]+(\.[-a-zA-Z0-9_]+)*\}\}")
_CHECKED = ("item.", "steps.", "inputs.", "outputs.", "pod.", "workflow.", "tasks.")
_LATER = (
    "outputs.", "workflow.creationTimestamp", "workflow.scheduledTime", "workflow.duration",
    "tasks.name", "steps.name", "node.name",
)  # fmt: skip
_ANY = {
    "item.": ANY_ITEM, "workflow.outputs.parameters.": ANY_PARAMETER, "workflow.outputs.artifacts.": ANY_ARTIFACT,
}  # fmt: skip


class Scope:
    """The names that references may use at one place, on top of those of a wider scope."""

    def __init__(self, names: Iterable[str] = (), outer: Scope | None = None) -> None:
        self.names, self.outer = set(names), outer
        self.values: dict[str, str] = {}  # of the names whose values are known
        self.answers: Callable[[str], bool] = lambda name: False  # for names that are too many to be listed

    def holds(self, name: str) -> bool:
        if name in self.names or self.answers(name):
            return True
        return self.outer is not None and self.outer.holds(name)

    def value(self, name: str) -> str | None:
        if name in self.values or self.outer is None:
            return self.values.get(name)
        return self.outer.value(name)


def unresolved(value: Any, path: Path, scope: Scope, where: str) -> Iterator[Problem]:
    """The references in the strings of `value` that `scope` can't answer; `where` begins their messages."""
    if isinstance(value, str):
        for match in _TAG.finditer(value) if "{{" in value else ():
            if match[1].startswith("="):
                yield from unreadable(match[1][1:], f"{where} failed to evaluate expression", path)
            elif found := _unanswered(match[1], scope):
                yield Problem(path, f"{where} failed to resolve {{{{{found}}}}}")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from unresolved(inner, (*path, key), scope, where)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unresolved(inner, (*path, index), scope, where)


def is_reference(value: str) -> bool:
    """Whether `value` holds a reference, so that nothing is known of it yet."""
    return _PARAMETER.search(value) is not None


def _unanswered(tag: str, scope: Scope) -> str:
    """The reference that nothing answers: `tag`, or what it becomes once one within it is resolved. Empty: none."""
    name = tag.strip()
    if not name.startswith(_CHECKED) or scope.holds(name):
        return ""
    outer, nested, inner = tag.rpartition("{{")
    if nested and (value := scope.value(inner)) is not None:  # {{inputs.parameters.{{workflow.parameters.which}}}}
        return _unanswered(outer + value, scope)
    known = name.startswith(_LATER) or any(name.startswith(root) and scope.holds(any_) for root, any_ in _ANY.items())
    return "" if known else tag
