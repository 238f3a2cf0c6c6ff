"""`withItems`, `withParam` and `withSequence`: which items a task or step runs for, and what each run is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import sequences
from .expressions import ExpressionError, evaluate_when
from .jsontext import in_order, read, write
from .nodes import Node
from .templates import EVERYTHING, substitute

_OVER = ("withItems", "withParam", "withSequence")
_LATER = ("inline",)  # what else it refers to is known when it runs


class LoopError(ValueError):
    """A loop over something that is no list, or is far too long."""


def loops(task: Mapping[str, Any]) -> bool:
    return bool(task.get("withItems") or task.get("withParam") or task.get("withSequence"))


def items(task: Mapping[str, Any]) -> list[Any]:
    """The items of a task that loops, its references resolved. Raises LoopError."""
    try:
        if task.get("withItems"):
            return [in_order(item) for item in task["withItems"]]
        if task.get("withParam"):
            return _parameter(task["withParam"])
        return sequences.items(task["withSequence"])
    except ValueError as error:
        if _skipped(task):
            return []
        raise LoopError(str(error)) from None


def run_name(name: str, index: int, item: Any) -> str:
    """The name of the run for one item: `learner(0:first)`."""
    shown = shown_item(item)
    if isinstance(item, dict):
        shown = ",".join(sorted(f"{key}:{shown_item(value)}" for key, value in item.items()))
    elif isinstance(item, list):
        shown = "[" + " ".join(shown_item(value) for value in item) + "]"
    elif item is None:
        shown = "[]"  # as Argo takes it for a list
    return f"{name}({index}:{shown.replace('(', '').replace(')', '')})"


def item_scope(item: Any) -> dict[str, str]:
    """`{{item}}`, and of an object `{{item.KEY}}`."""
    if isinstance(item, dict):
        whole = {key: item[key] for key in sorted(item)}
        return {"item": write(whole)} | {f"item.{key}": shown_item(value) for key, value in item.items()}
    return {"item": item if isinstance(item, str) else write(item)}


class Loop:
    """A task or step that runs once for each of `items`; `task` has its references resolved but for those to items."""

    def __init__(self, task: Mapping[str, Any], scope: Mapping[str, str]) -> None:
        """Raises LoopError, and UnresolvedError or ExpressionError for a run that can't be had."""
        self.task, self.items = task, items(task)
        self._own = {key: value for key, value in task.items() if key not in _OVER and key not in _LATER}
        self._later = {key: task[key] for key in _LATER if key in task}
        for item in self.items:
            self.run(item, scope)

    def run(self, item: Any, scope: Mapping[str, str]) -> Mapping[str, Any]:
        """The task for one item. Raises UnresolvedError, ExpressionError."""
        strict: tuple[str, ...] = EVERYTHING
        if "{{" not in (self.task.get("when") or "") and not evaluate_when(self.task.get("when") or ""):
            strict = ()  # it won't run: what it would have been given doesn't matter
        own = item_scope(item)
        resolved: Mapping[str, Any] = substitute(self._own, {**scope, **own}, strict) | substitute(self._later, own)
        return resolved

    def name(self, index: int) -> str:
        return run_name(self.task["name"], index, self.items[index])

    def missing(self, made: Iterable[Node]) -> Iterable[int]:
        """The indices of the items that have no node yet among `made`."""
        known = list(made)
        if not known or loop_index(known[-1]) == len(known) - 1:  # none was left out
            return range(len(known), len(self.items))
        taken = {loop_index(node) for node in known}
        return [index for index in range(len(self.items)) if index not in taken]


def loop_index(node: Node) -> int:
    """Which item of its loop a node runs for."""
    return int(node["name"].rpartition("(")[2].partition(":")[0])


def shown_item(item: Any) -> str:
    """An item as it stands in names, and as a member of another: JSON, of a text what is between its quotes."""
    written = write(item, html=False)
    return written[1:-1] if isinstance(item, str) else written


def _parameter(source: str) -> list[Any]:
    try:
        found = read(source)
        if found is None:
            return []
        if not isinstance(found, list):
            kinds = {dict: "object", str: "string", bool: "bool"}
            kind = kinds.get(type(found), "number")
            raise ValueError(f"json: cannot unmarshal {kind} into Go value of type []v1alpha1.Item")
    except ValueError as error:
        raise ValueError(f"withParam value could not be parsed as a JSON list: {source.strip()}: {error}") from None
    return found


def _skipped(task: Mapping[str, Any]) -> bool:
    try:
        return not evaluate_when(task.get("when") or "")
    except ExpressionError:
        return False
