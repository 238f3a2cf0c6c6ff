"""Sprig's functions on lists. Each has a twin whose name begins with `must`, which differs in nothing here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import FaultError
from ..operations import same
from ..values import kind
from .function import ANY, INT, Function
from .numbers import to_int
from .values import empty, texts_of, to_text


def _needs_list(said: str, call: Callable[..., Any], at: int = 0) -> Callable[..., Any]:
    def checked(*arguments: Any) -> Any:
        if not isinstance(arguments[at], list):
            if arguments[at] is None:
                raise FaultError("runtime error: invalid memory address or nil pointer dereference")
            raise FaultError(f"{said} {kind(arguments[at])}")
        return call(*arguments)

    return checked


def _uniq(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not any(same(item, known) for known in found):
            found.append(item)
    return found


def _without(items: list[Any], *omitted: Any) -> list[Any]:
    return [item for item in items if not any(same(item, other) for other in omitted)]


def _slice(items: list[Any], *bounds: Any) -> list[Any] | None:
    if not items:
        return None
    start = to_int(bounds[0]) if bounds else 0
    end = to_int(bounds[1]) if len(bounds) > 1 else len(items)
    if not 0 <= start <= end <= len(items):
        raise FaultError("reflect.Value.Slice: slice index out of bounds")
    return items[start:end]


def _chunk(size: int, items: list[Any]) -> list[list[Any]]:
    if size <= 0:
        raise FaultError("runtime error: makeslice: len out of range")
    return [items[at : at + size] for at in range(0, len(items), size)]


def _concat(*lists: Any) -> list[Any]:
    for items in lists:
        if not isinstance(items, list):
            raise FaultError(f"Cannot concat type {kind(items)} as list")
    return [item for items in lists for item in items]


def _has(needle: Any, items: Any) -> bool:
    if items is None:
        return False
    if not isinstance(items, list):
        raise FaultError(f"Cannot find has on type {kind(items)}")
    return any(same(needle, item) for item in items)


_LIST = Function(lambda *items: list(items), more=ANY)
_PUSH = Function(_needs_list("Cannot push on type", lambda items, item: [*items, item]), ANY, ANY)
_BOTH: dict[str, Function] = {
    "append": _PUSH,
    "push": _PUSH,
    "prepend": Function(_needs_list("Cannot prepend on type", lambda items, item: [item, *items]), ANY, ANY),
    "first": Function(_needs_list("Cannot find first on type", lambda items: items[0] if items else None), ANY),
    "last": Function(_needs_list("Cannot find last on type", lambda items: items[-1] if items else None), ANY),
    "rest": Function(_needs_list("Cannot find rest on type", lambda items: items[1:] if items else None), ANY),
    "initial": Function(_needs_list("Cannot find initial on type", lambda items: items[:-1] if items else None), ANY),
    "reverse": Function(_needs_list("Cannot find reverse on type", lambda items: items[::-1]), ANY),
    "compact": Function(
        _needs_list("Cannot compact on type", lambda items: [item for item in items if not empty(item)]), ANY
    ),
    "uniq": Function(_needs_list("Cannot find uniq on type", _uniq), ANY),
    "without": Function(_needs_list("Cannot find without on type", _without), ANY, more=ANY),
    "has": Function(_has, ANY, ANY),
    "slice": Function(_needs_list("list should be type of slice or array but", _slice), ANY, more=ANY),
    "chunk": Function(_needs_list("Cannot chunk type", _chunk, 1), INT, ANY),
}
FUNCTIONS: dict[str, Function] = {
    **_BOTH,
    **{f"must{name[0].upper()}{name[1:]}": function for name, function in _BOTH.items()},
    "list": _LIST,
    "tuple": _LIST,
    "concat": Function(_concat, more=ANY),
    "sortAlpha": Function(lambda v: sorted(texts_of(v)) if isinstance(v, list) else [to_text(v)], ANY),
    "toStrings": Function(lambda value: texts_of(value), ANY),
}
