"""Values as Go has them: the names of their types, how they print, and how they are read from text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from .errors import FaultError
from .gojson import complaint

INTERFACE = "interface {}"
LIST, MAP, ANY_MAP = "[]interface {}", "map[string]interface {}", "map[interface {}]interface {}"

_NAMES = {bool: "bool", int: "int", float: "float64", str: "string", type(None): "<nil>", list: LIST}
_KINDS = {bool: "bool", int: "int", float: "float64", str: "string", type(None): "invalid", list: "slice"}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class AnyMap(dict[Any, Any]):
    """A map whose keys may be anything."""


def type_name(value: Any) -> str:
    """What `%T` prints."""
    if isinstance(value, AnyMap):
        return ANY_MAP
    return _NAMES.get(type(value)) or (MAP if isinstance(value, Mapping) else "func")


def kind(value: Any) -> str:
    """What `reflect` calls the kind of a value."""
    return _KINDS.get(type(value)) or ("map" if isinstance(value, Mapping) else "func")


def is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def wrapped(value: int) -> int:
    """An integer within 64 bits, as it overflows."""
    return (value + 2**63) % 2**64 - 2**63


def text(value: Any) -> str:
    """What `%v` prints."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value, -4, 6)
    if isinstance(value, list):
        return f"[{' '.join(text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{text(key)}:{text(value[key])}' for key in sorted(value, key=str))}]"
    return str(value)


def string_verb(value: Any) -> str:
    """What `%s` prints, which says of anything but text what it is."""
    if isinstance(value, str):
        return value
    if value is None:
        return "%!s(<nil>)"
    if isinstance(value, list):
        return f"[{' '.join(string_verb(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{string_verb(key)}:{string_verb(value[key])}' for key in sorted(value, key=str))}]"
    return f"%!s({type_name(value)}={text(value)})"


def float_text(value: float, low: int, high: int) -> str:
    """The shortest digits that are `value`; with an exponent where that would be below `low`, or `high` and more."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    from decimal import Decimal  # seldom needed, and a start-up cost

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    minus = "-" if sign else ""
    point = len(digits) + exponent - 1  # the exponent of the first digit
    if value == 0:
        return f"{minus}0"
    if low <= point < high:
        return f"{minus}{Decimal((0, digits, exponent)):f}"
    mantissa = "".join(map(str, digits))
    rest = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{minus}{mantissa[0]}{rest}e{'-' if point < 0 else '+'}{abs(point):02d}"


def to_json(value: Any, *, indent: str = "", html: bool = True) -> str:
    """JSON as Go writes it: keys in order, `<`, `>` and `&` escaped where `html`. Raises FaultError."""
    return _json(value, indent, "\n" if indent else "", html)


def _json(value: Any, indent: str, line: str, html: bool) -> str:
    if isinstance(value, str):
        written = json.dumps(value, ensure_ascii=False)
        return written.translate(_HTML) if html else written
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FaultError(f"json: unsupported value: {float_text(value, 0, 0)}")
        return re.sub(r"e-0(\d)$", r"e-\1", float_text(value, -6, 21))
    if isinstance(value, int):
        return str(value)
    deeper = line + indent
    if isinstance(value, list):
        items = [_json(item, indent, deeper, html) for item in value]
        return f"[{deeper}{f',{deeper}'.join(items)}{line}]" if items else "[]"
    if isinstance(value, Mapping):
        if isinstance(value, AnyMap):
            raise FaultError(f"json: unsupported type: {ANY_MAP}")
        colon = ": " if indent else ":"
        keys = [(_json(key, indent, "", html), key) for key in sorted(value)]
        pairs = [f"{written}{colon}{_json(value[key], indent, deeper, html)}" for written, key in keys]
        return f"{{{deeper}{f',{deeper}'.join(pairs)}{line}}}" if pairs else "{}"
    raise FaultError(f"json: unsupported type: {type_name(value)}")


def from_json(source: str) -> Any:
    """What JSON says; its numbers are floats, as in Go. Raises FaultError."""
    try:
        return json.loads(source, parse_int=float, parse_constant=_no_constant)
    except ValueError as error:
        raise FaultError(complaint(source) or str(error)) from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def atoi(source: str) -> int:
    """A decimal integer of 64 bits. Raises ValueError."""
    if not _INTEGER.fullmatch(source) or not -(2**63) <= int(source) < 2**63:
        raise ValueError(source)
    return int(source)


def parse_float(source: str) -> float:
    """Raises ValueError, also for what is too large."""
    if not _FLOAT.fullmatch(source):
        raise ValueError(source)
    value = float(source)
    if math.isinf(value) and "inf" not in source.lower():
        raise ValueError(source)
    return value
