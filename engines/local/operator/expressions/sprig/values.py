"""Sprig's functions on values of any kind: defaults, JSON, types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import FaultError
from ..operations import same
from ..values import from_json, kind, text, to_json, type_name
from .function import ANY, BOOL, TEXT, Function


def empty(value: Any) -> bool:
    """Nothing, zero, false, or without content."""
    return not value


def to_text(value: Any) -> str:
    return text(value)


def texts_of(value: Any) -> list[str]:
    """A list of texts out of a list, or of one value."""
    if value is None:
        return []
    return [text(item) for item in value if item is not None] if isinstance(value, list) else [text(value)]


def _default(default: Any, *given: Any) -> Any:
    return default if not given or empty(given[0]) else given[0]


def _quiet(call: Callable[..., Any], instead: Any) -> Callable[..., Any]:
    def checked(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except FaultError:
            return instead

    return checked


def _pretty(value: Any) -> str:
    return to_json(value, indent="  ")


def _raw(value: Any) -> str:
    return to_json(value, html=False)


def _fail(message: str) -> Any:
    raise FaultError(message)


FUNCTIONS: dict[str, Function] = {
    "default": Function(_default, ANY, more=ANY),
    "empty": Function(empty, ANY),
    "coalesce": Function(lambda *values: next((value for value in values if not empty(value)), None), more=ANY),
    "all": Function(lambda *values: not any(map(empty, values)), more=ANY),
    "any": Function(lambda *values: not all(map(empty, values)), more=ANY),
    "ternary": Function(lambda yes, no, condition: yes if condition else no, ANY, ANY, BOOL),
    "fromJson": Function(_quiet(from_json, None), TEXT),
    "mustFromJson": Function(from_json, TEXT),
    "toJson": Function(_quiet(to_json, ""), ANY),
    "mustToJson": Function(to_json, ANY),
    "toPrettyJson": Function(_quiet(_pretty, ""), ANY),
    "mustToPrettyJson": Function(_pretty, ANY),
    "toRawJson": Function(_raw, ANY),
    "mustToRawJson": Function(_raw, ANY),
    "toString": Function(text, ANY),
    "typeOf": Function(type_name, ANY),
    "typeIs": Function(lambda name, value: name == type_name(value), TEXT, ANY),
    "typeIsLike": Function(lambda name, value: type_name(value) in (name, "*" + name), TEXT, ANY),
    "kindOf": Function(kind, ANY),
    "kindIs": Function(lambda name, value: name == kind(value), TEXT, ANY),
    "deepEqual": Function(same, ANY, ANY),
    "fail": Function(_fail, TEXT),
}
