"""Sprig's arithmetic: whatever looks like a number is one, and what doesn't is 0."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ..errors import FaultError
from ..operations import MOST_MEMORY
from ..values import atoi, is_number, parse_float, text, wrapped
from .function import ANY, FLOAT, INT, TEXT, Function

_GO_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)")


def to_int(value: Any) -> int:
    """As `cast.ToInt64`: numbers lose their fraction, text is read as a Go literal."""
    if isinstance(value, bool):
        return int(value)
    if is_number(value):
        return wrapped(int(value)) if math.isfinite(value) else -(2**63)
    if isinstance(value, str):
        decimal = re.fullmatch(r"([-+]?[0-9]*)\.[0-9]*", value)
        whole = (decimal[1] if decimal[1].strip("+-") else "0") if decimal else value
        if _GO_INTEGER.fullmatch(whole):
            return _literal(whole)
    return 0


def _literal(written: str) -> int:
    digits = written.lstrip("+-").lower()
    bases = {"0x": 16, "0b": 2, "0o": 8}
    base = bases.get(digits[:2]) or (8 if len(digits) > 1 and digits[0] == "0" else 10)
    value = int(digits[2:] if digits[:2] in bases else digits, base)
    value = -value if written[0] == "-" else value
    return value if -(2**63) <= value < 2**63 else 0


def to_float(value: Any) -> float:
    if is_number(value) or isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return parse_float(value)
        except ValueError:
            return 0.0
    return 0.0


def _atoi(value: str) -> int:
    try:
        return atoi(value)
    except ValueError:
        return 0


def _to_decimal(value: Any) -> int:
    written = text(value)
    return int(written, 8) if re.fullmatch(r"[+-]?[0-7]+", written) else 0


def _divide(left: Any, right: Any) -> int:
    divisor = to_int(right)
    if divisor == 0:
        raise FaultError("runtime error: integer divide by zero")
    quotient = abs(to_int(left)) // abs(divisor)
    return wrapped(quotient if (to_int(left) < 0) == (divisor < 0) else -quotient)


def _modulo(left: Any, right: Any) -> int:
    divisor = to_int(right)
    if divisor == 0:
        raise FaultError("runtime error: integer divide by zero")
    rest = abs(to_int(left)) % abs(divisor)
    return -rest if to_int(left) < 0 else rest


def _decimals(operate: Callable[[Decimal, Decimal], Decimal]) -> Callable[..., float]:
    """A chain of operations on exact decimals."""

    def call(first: Any, *others: Any) -> float:
        value = _decimal(first)
        for other in others:
            value = operate(value, _decimal(other))
        return float(value)

    return call


def _decimal(value: Any) -> Decimal:
    return Decimal(repr(to_float(value)))


def _quotient(left: Decimal, right: Decimal) -> Decimal:
    if right == 0:
        raise FaultError("decimal division by 0")
    return left / right if left == 0 else round(left / right, 16)


def _round(value: Any, places: int, up_from: float = 0.5) -> float:
    power = math.pow(10, places)
    digit = power * to_float(value)
    fraction = math.modf(digit)[0]
    return float(math.ceil(digit) if fraction >= up_from else math.floor(digit)) / power


def _until_step(start: int, stop: int, step: int) -> list[int]:
    if (stop < start and step >= 0) or (stop >= start and step <= 0):
        return []
    if abs(stop - start) // abs(step) > MOST_MEMORY:
        raise FaultError("memory budget exceeded")
    return list(range(start, stop, step))


def _until(count: int) -> list[int]:
    return _until_step(0, count, -1 if count < 0 else 1)


def _sequence(*numbers: int) -> str:
    if not 1 <= len(numbers) <= 3:
        return ""
    start, end = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    step = numbers[1] if len(numbers) == 3 else (-1 if end < start else 1)
    towards = -1 if end < start else 1
    if len(numbers) == 3 and end < start and step > 0:
        return ""
    return " ".join(map(str, _until_step(start, end + towards, step)))


_SUM = _decimals(lambda a, b: a + b)
_BIGGEST = Function(lambda first, *others: max(map(to_int, (first, *others))), ANY, more=ANY)

FUNCTIONS: dict[str, Function] = {
    "atoi": Function(_atoi, TEXT),
    "int": Function(to_int, ANY),
    "int64": Function(to_int, ANY),
    "float64": Function(to_float, ANY),
    "toDecimal": Function(_to_decimal, ANY),
    "add": Function(lambda *values: wrapped(sum(map(to_int, values))), more=ANY),
    "add1": Function(lambda value: wrapped(to_int(value) + 1), ANY),
    "addf": Function(lambda *values: _SUM(0.0, *values), more=ANY),
    "add1f": Function(lambda value: _SUM(value, 1.0), ANY),
    "sub": Function(lambda a, b: wrapped(to_int(a) - to_int(b)), ANY, ANY),
    "subf": Function(_decimals(lambda a, b: a - b), ANY, more=ANY),
    "mul": Function(lambda first, *others: wrapped(math.prod(map(to_int, (first, *others)))), ANY, more=ANY),
    "mulf": Function(_decimals(lambda a, b: a * b), ANY, more=ANY),
    "div": Function(_divide, ANY, ANY),
    "divf": Function(_decimals(_quotient), ANY, more=ANY),
    "mod": Function(_modulo, ANY, ANY),
    "max": _BIGGEST,
    "biggest": _BIGGEST,
    "min": Function(lambda first, *others: min(map(to_int, (first, *others))), ANY, more=ANY),
    "maxf": Function(lambda first, *others: max(map(to_float, (first, *others))), ANY, more=ANY),
    "minf": Function(lambda first, *others: min(map(to_float, (first, *others))), ANY, more=ANY),
    "ceil": Function(lambda value: float(math.ceil(to_float(value))), ANY),
    "floor": Function(lambda value: float(math.floor(to_float(value))), ANY),
    "round": Function(_round, ANY, INT, more=FLOAT),
    "until": Function(_until, INT),
    "untilStep": Function(_until_step, INT, INT, INT),
    "seq": Function(_sequence, more=INT),
}
