"""The functions of expr-lang on lists and maps, and on numbers that may come in lists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .errors import FaultError
from .operations import add, equal, fetch, less
from .values import AnyMap, is_number, kind, text, type_name


def extreme(name: str, before: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        best: Any = None
        for argument in arguments:
            if not isinstance(argument, list) and not is_number(argument):
                if len(arguments) == 1:
                    return argument
                raise FaultError(f"invalid argument for {name} (type {type_name(argument)})")
            for value in [call(item) for item in argument] if isinstance(argument, list) else [argument]:
                if not is_number(value):
                    raise FaultError(f"invalid argument for {name} (type {type_name(value)})")
                if best is None or before(best, value):
                    best = value
        return best

    return call


def _numbers(name: str, arguments: Any) -> list[float]:
    found: list[float] = []
    for argument in arguments:
        if isinstance(argument, list):
            found += _numbers(name, argument)
        elif is_number(argument):
            found.append(float(argument))
        else:
            raise FaultError(f"invalid argument for {name} (type {type_name(argument)})")
    return found


def mean(*arguments: Any) -> float:
    values = _numbers("mean", arguments)
    return sum(values) / len(values) if values else 0.0


def median(*arguments: Any) -> float:
    values = sorted(_numbers("median", arguments))
    middle = len(values) // 2
    if not values:
        return 0.0
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def of_list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FaultError(f"cannot {name} {kind(value)}")
    return value


def of_map(name: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise FaultError(f"cannot {name} {kind(value)}")
    return value


def at_place(at: int) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        try:
            return fetch(value, at)
        except FaultError:
            return None

    return call


def get(holder: Any, key: Any) -> Any:
    if isinstance(holder, (list, str)):
        try:
            return fetch(holder, key)
        except FaultError as error:
            if not str(error).startswith("index out of range"):
                raise
            return None
    return fetch(holder, key) if isinstance(holder, Mapping) else None


def take(value: Any, count: Any) -> list[Any]:
    items = of_list("take from", value)
    if type(count) is not int:
        raise FaultError(f"cannot take {kind(count)} elements")
    if count < 0:
        raise FaultError("reflect.Value.Slice: slice index out of bounds")
    return items[:count]


def from_pairs(value: Any) -> AnyMap:
    found = AnyMap()
    for pair in of_list("transform from pairs", value):
        if not isinstance(pair, list):
            raise FaultError(f"invalid pair {text(pair)}")
        if len(pair) != 2:
            raise FaultError(f"invalid pair length {text(pair)}")
        found[pair[0]] = pair[1]
    return found


def unique(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in of_list("uniq", value):
        if not any(equal(item, known) for known in found):
            found.append(item)
    return found


def concat(*values: Any) -> list[Any]:
    return [item for value in values for item in of_list("concat", value)]


def flatten(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in of_list("flatten", value):
        found += flatten(item) if isinstance(item, list) else [item]
    return found


def in_order(items: list[Any], values: list[Any], order: str, said: str) -> list[Any]:
    """`items` by their `values`, ascending or descending."""
    if order not in ("asc", "desc"):
        raise FaultError(said)

    def compare(a: int, b: int) -> int:
        before = less(values[a], values[b])
        return -1 if before else int(less(values[b], values[a]))

    found = sorted(range(len(items)), key=functools.cmp_to_key(compare), reverse=order == "desc")
    return [items[at] for at in found]


def sort(value: Any, order: str = "asc") -> list[Any] | None:
    items = value if isinstance(value, list) else []
    found = in_order(items, items, order, f"invalid order {order}, expected asc or desc")
    return found if isinstance(value, list) else None


def total(values: list[Any]) -> Any:
    return functools.reduce(lambda sum_, value: add(value, sum_), values, 0)
