"""What the operators do with values, as expr-lang's machine does it. Each raises FaultError."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .errors import FaultError
from .regex import compiled
from .values import AnyMap, is_number, text, type_name, wrapped

MOST_MEMORY = 1_000_000  # items that one expression may make


def to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise FaultError(f"interface conversion: interface {{}} is {_inner(value)}, not bool")


def to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise FaultError(f"interface conversion: interface {{}} is {_inner(value)}, not string")


def to_int(value: Any) -> int:
    """A number without its fraction."""
    if is_number(value):
        return wrapped(int(value)) if math.isfinite(value) else -(2**63)
    raise FaultError(f"invalid operation: int({type_name(value)})")


def to_float(value: Any) -> float:
    if is_number(value):
        return float(value)
    raise FaultError(f"invalid operation: float({type_name(value)})")


def _inner(value: Any) -> str:
    return "nil" if value is None else type_name(value)


def equal(left: Any, right: Any) -> bool:
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    return same(left, right)


def same(left: Any, right: Any) -> bool:
    """Equal in type and value, all the way down."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and bool(left == right)


def _ordered(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def operate(left: Any, right: Any) -> bool:
        if (is_number(left) and is_number(right)) or (isinstance(left, str) and isinstance(right, str)):
            return compare(left, right)
        raise _not_defined(sign, left, right)

    return operate


def _not_defined(sign: str, left: Any, right: Any) -> FaultError:
    return FaultError(f"invalid operation: {type_name(left)} {sign} {type_name(right)}")


def less(left: Any, right: Any) -> bool:
    return bool(BINARY["<"](left, right))


def add(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if not (is_number(left) and is_number(right)):
        raise _not_defined("+", left, right)
    return _number(left + right)


def subtract(left: Any, right: Any) -> Any:
    if not (is_number(left) and is_number(right)):
        raise _not_defined("-", left, right)
    return _number(left - right)


def multiply(left: Any, right: Any) -> Any:
    if not (is_number(left) and is_number(right)):
        raise _not_defined("*", left, right)
    return _number(left * right)


def _number(value: float) -> float:
    return wrapped(value) if isinstance(value, int) else value


def divide(left: Any, right: Any) -> float:
    if not (is_number(left) and is_number(right)):
        raise _not_defined("/", left, right)
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    return float(left) / float(right)


def modulo(left: Any, right: Any) -> int:
    if type(left) is not int or type(right) is not int:
        raise _not_defined("%", left, right)
    if right == 0:
        raise FaultError("runtime error: integer divide by zero")
    return int(math.fmod(left, right)) if abs(left) < 2**53 > abs(right) else _remainder(left, right)


def _remainder(left: int, right: int) -> int:
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def power(left: Any, right: Any) -> float:
    base, exponent = to_float(left), to_float(right)
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf if base > 0 or exponent % 2 == 0 else -math.inf
    except ValueError:  # 0 ** -1, or a root of a negative number
        return math.inf if base == 0 else math.nan


def span(left: Any, right: Any) -> list[int]:
    start, end = to_int(left), to_int(right)
    if end - start + 1 > MOST_MEMORY:
        raise FaultError("memory budget exceeded")
    return list(range(start, end + 1))


def contains(item: Any, holder: Any) -> bool:
    """`item in holder`."""
    if holder is None:
        return False
    if isinstance(holder, list):
        return any(equal(found, item) for found in holder)
    if isinstance(holder, AnyMap):
        return not isinstance(item, (list, dict)) and item in holder
    if isinstance(holder, Mapping):
        if item is None:
            return "" in holder
        if not isinstance(item, str):
            raise FaultError(_no_key(item))
        return item in holder
    raise FaultError(f'operator "in" not defined on {type_name(holder)}')


def _no_key(item: Any) -> str:
    return f"reflect.Value.MapIndex: value of type {type_name(item)} is not assignable to type string"


def matches(value: Any, pattern: Any) -> bool:
    if value is None or pattern is None:
        return False
    if not isinstance(value, str):
        raise FaultError(f"interface conversion: interface {{}} is {type_name(value)}, not []uint8")
    return compiled(to_text(pattern)).search(value) is not None


def _on_text(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def operate(left: Any, right: Any) -> bool:
        return left is not None and right is not None and test(to_text(left), to_text(right))

    return operate


def fetch(holder: Any, key: Any) -> Any:
    """`holder[key]`, `holder.key`. What a map doesn't have is nil."""
    if isinstance(holder, AnyMap):
        return None if isinstance(key, (list, dict)) else holder.get(key)
    if isinstance(holder, Mapping):
        if key is not None and not isinstance(key, str):
            raise FaultError(_no_key(key))
        return holder.get("" if key is None else key)
    if isinstance(holder, (list, str)):
        sequence = holder if isinstance(holder, list) else holder.encode()
        index, length = to_int(key), len(sequence)
        place = length + index if index < 0 else index
        if not 0 <= place < length:
            raise FaultError(f"index out of range: {place} (array length is {length})")
        return sequence[place]
    raise FaultError(f"cannot fetch {text(key)} from {type_name(holder)}")


def cut(holder: Any, start: Any, end: Any, *, whole: bool) -> Any:
    """`holder[start:end]`; `whole`: no end was written."""
    if not isinstance(holder, (list, str)):
        if whole:
            raise FaultError(f"invalid argument for len (type {type_name(holder)})")
        raise FaultError(f"cannot slice {text(start)}")
    sequence = holder if isinstance(holder, list) else holder.encode()
    length = len(sequence)
    first, last = to_int(start), length if whole else to_int(end)
    first = max(length + first, 0) if first < 0 else first
    last = max(length + last, 0) if last < 0 else min(last, length)
    piece = sequence[min(first, last) : last]
    return piece.decode(errors="replace") if isinstance(piece, bytes) else piece


def negate(value: Any) -> Any:
    if not is_number(value):
        raise FaultError(f"invalid operation: - {type_name(value)}")
    return _number(-value)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _ordered("<", lambda a, b: a < b),
    ">": _ordered(">", lambda a, b: a > b),
    "<=": _ordered("<=", lambda a, b: a <= b),
    ">=": _ordered(">=", lambda a, b: a >= b),
    "+": add, "-": subtract, "*": multiply, "/": divide, "%": modulo, "**": power, "^": power, "..": span,
    "in": contains, "matches": matches,
    "contains": _on_text(lambda a, b: b in a),
    "startsWith": _on_text(str.startswith),
    "endsWith": _on_text(str.endswith),
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "!": lambda value: not to_bool(value),
    "not": lambda value: not to_bool(value),
    "-": negate,
    "+": lambda value: value,
}
