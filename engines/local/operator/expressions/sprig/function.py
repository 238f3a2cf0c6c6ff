"""A function as Go's reflection calls it: with arguments of the types that it declares, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import FaultError
from ..values import INTERFACE, LIST, MAP, type_name

ANY, TEXT, INT, FLOAT, BOOL = INTERFACE, "string", "int", "float64", "bool"

_ZERO: dict[str, Any] = {TEXT: "", INT: 0, FLOAT: 0.0, BOOL: False, MAP: {}, LIST: []}


class Function:
    """`takes`: the types of its arguments; `more`: that of any number of further ones."""

    def __init__(self, call: Callable[..., Any], *takes: str, more: str = "") -> None:
        self.call, self.takes, self.more = call, takes, more

    def __call__(self, *arguments: Any) -> Any:
        if len(arguments) < len(self.takes):
            raise FaultError("reflect: Call with too few input arguments")
        if len(arguments) > len(self.takes) and not self.more:
            raise FaultError("reflect: Call with too many input arguments")
        wanted = [*self.takes, *[self.more] * (len(arguments) - len(self.takes))]
        return self.call(*(_as(value, type_) for value, type_ in zip(arguments, wanted, strict=True)))


def _as(value: Any, wanted: str) -> Any:
    if wanted == ANY:
        return value
    if value is None:
        return _ZERO[wanted]
    if type_name(value) != wanted:
        raise FaultError(f"reflect: Call using {type_name(value)} as type {wanted}")
    return value
