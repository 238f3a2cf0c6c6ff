"""`withItems`, `withParam` and `withSequence`: which items a task or step runs for, and what each run is called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .expressions import ExpressionError, evaluate_when

_MOST_ITEMS = 100_000


class LoopError(ValueError):
    """A loop over something that is no list, or is far too long."""


def loops(task: Mapping[str, Any]) -> bool:
    return bool(task.get("withItems") or task.get("withParam") or task.get("withSequence"))


def items(task: Mapping[str, Any]) -> list[Any]:
    """The items of a task that loops, its references resolved. Raises LoopError."""
    try:
        if task.get("withItems"):
            return list(task["withItems"])
        if task.get("withParam"):
            return _parameter(task["withParam"])
        return _sequence(task["withSequence"])
    except LoopError:
        if _skipped(task):
            return []
        raise


def run_name(name: str, index: int, item: Any) -> str:
    """The name of the run for one item: `learner(0:first)`."""
    shown = item_text(item)
    if isinstance(item, dict):
        shown = ",".join(sorted(f"{key}:{item_text(value)}" for key, value in item.items()))
    elif isinstance(item, list):
        shown = "[" + " ".join(item_text(value) for value in item) + "]"
    return f"{name}({index}:{shown.replace('(', '').replace(')', '')})"


def item_scope(item: Any) -> dict[str, str]:
    """`{{item}}`, and of an object `{{item.KEY}}`."""
    scope = {"item": item_text(item)}
    if isinstance(item, dict):
        scope.update({f"item.{key}": item_text(value) for key, value in item.items()})
    return scope


def item_text(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item, separators=(",", ":"), ensure_ascii=False)


def _parameter(source: str) -> list[Any]:
    try:
        found = json.loads(source)
    except ValueError as error:
        raise LoopError(f"withParam value could not be parsed as a JSON list: {source.strip()}: {error}") from None
    if not isinstance(found, list):
        raise LoopError(f"withParam value could not be parsed as a JSON list: {source.strip()}")
    return found


def _sequence(sequence: Mapping[str, Any]) -> list[Any]:
    def number(key: str) -> int:
        try:
            return int(str(sequence[key]))
        except ValueError:
            raise LoopError(f"withSequence.{key}: '{sequence[key]}' is not a whole number") from None

    start = number("start") if "start" in sequence else 0
    if "end" in sequence:
        end = number("end")
    elif "count" in sequence:
        count = number("count")
        if count == 0:
            return []
        end = start + count - 1
    else:
        raise LoopError("neither end nor count was specified in withSequence")
    if abs(end - start) >= _MOST_ITEMS:
        raise LoopError(f"withSequence: {abs(end - start) + 1} items; the most is {_MOST_ITEMS}")
    form = sequence.get("format") or "%d"
    try:
        return [form % i for i in range(start, end + 1) if start <= end] or [
            form % i for i in range(start, end - 1, -1)
        ]
    except (TypeError, ValueError) as error:
        raise LoopError(f"withSequence.format '{form}': {error}") from None


def _skipped(task: Mapping[str, Any]) -> bool:
    try:
        return not evaluate_when(task.get("when") or "")
    except ExpressionError:
        return False
