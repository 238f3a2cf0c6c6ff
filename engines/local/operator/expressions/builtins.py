"""The functions of expr-lang that take values. Those that take a predicate are the evaluator's."""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import lists
from .errors import FaultError
from .operations import MOST_MEMORY, less, to_int, to_text
from .values import LIST, atoi, from_json, is_number, parse_float, text, to_json, type_name, wrapped

ANY, TEXT, INT, FLOAT, BOOL, TEXTS = "interface {}", "string", "int", "float64", "bool", "[]string"

# Of those that take a predicate: their arguments; a `?` marks what may be left out.
PREDICATES = {
    **dict.fromkeys(("all", "none", "any", "one", "filter", "map", "find", "findIndex"), ("list", "predicate")),
    **dict.fromkeys(("findLast", "findLastIndex", "groupBy"), ("list", "predicate")),
    **dict.fromkeys(("count", "sum"), ("list", "predicate?")),
    **dict.fromkeys(("sortBy", "reduce"), ("list", "predicate", "value?")),
}
NOT_EXECUTED = ("now", "date", "duration", "timezone")  # values of these would depend on the moment, or on zones


class Function(NamedTuple):
    """`overloads`: (types of the arguments, type of the result); none where `check` of the checker decides."""

    call: Callable[..., Any]
    overloads: tuple[tuple[tuple[str, ...], str], ...] = ()


def _length(value: Any) -> int:
    if isinstance(value, (str, list, Mapping)):
        return len(value)
    raise FaultError(f"invalid argument for len (type {type_name(value)})")


def _type(value: Any) -> str:
    names = {type(None): "nil", bool: "bool", int: "int", float: "float", str: "string", list: "array"}
    return names.get(type(value)) or ("map" if isinstance(value, Mapping) else "func")


def _abs(value: Any) -> Any:
    if not is_number(value):
        raise FaultError(f"invalid argument for abs (type {type_name(value)})")
    return wrapped(abs(value)) if isinstance(value, int) else abs(value)


def _rounding(name: str, rounded: Callable[[float], float]) -> Callable[[Any], float]:
    def call(value: Any) -> float:
        if not is_number(value):
            raise FaultError(f"invalid argument for {name} (type {type_name(value)})")
        return float(value) if isinstance(value, int) or not math.isfinite(value) else rounded(value)

    return call


def integer(value: Any) -> int:
    if isinstance(value, str):
        try:
            return atoi(value)
        except ValueError:
            raise FaultError(f"invalid operation: int({value})") from None
    if value is None:
        raise FaultError("reflect: call of reflect.Value.Type on zero Value")
    return to_int(value)


def floating(value: Any) -> float:
    if isinstance(value, str):
        try:
            return parse_float(value)
        except ValueError:
            raise FaultError(f"invalid operation: float({value})") from None
    if is_number(value):
        return float(value)
    raise FaultError(f"invalid operation: float({type_name(value)})")


SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def upper(value: str) -> str:
    return "".join(c.upper() if len(c.upper()) == 1 else c for c in value)


def lower(value: str) -> str:
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in value)


def split(value: str, separator: str, most: Any = -1, *, keep: bool = False) -> list[str]:
    """As strings.SplitN: at most `most` pieces, no limit below 0; without a separator, characters."""
    most = to_int(most)
    if most == 0:
        return []
    if separator == "":
        return list(value) if most < 0 or most >= len(value) else [*value[: most - 1], value[most - 1 :]]
    pieces = value.split(separator, most - 1 if most > 0 else -1)
    return [*(piece + separator for piece in pieces[:-1]), pieces[-1]] if keep else pieces


def repeat(value: str, count: Any) -> str:
    times = to_int(count)
    if times < 0:
        raise FaultError(f"invalid argument for repeat (expected positive integer, got {times})")
    if times > MOST_MEMORY or times * len(value) >= MOST_MEMORY:
        raise FaultError("memory budget exceeded")
    return value * times


def _join(items: Any, glue: str = "") -> str:
    if not isinstance(items, list):
        raise FaultError(f"invalid argument for join (type {type_name(items)})")
    return glue.join(to_text(item) for item in items)


def _index(value: str, part: str) -> int:
    at = value.find(part)
    return at if at < 0 else len(value[:at].encode())


def _last_index(value: str, part: str) -> int:
    at = value.rfind(part)
    return at if at < 0 else len(value[:at].encode())


def from_base64(value: str) -> str:
    try:
        return binascii.a2b_base64(value.replace("\n", "").replace("\r", ""), strict_mode=True).decode(errors="replace")
    except ValueError:
        known = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        bad = next((at for at, c in enumerate(value) if c not in known), len(value) // 4 * 4)
        raise FaultError(f"illegal base64 data at input byte {bad}") from None


def _bits(name: str, operate: Callable[[int, int], int]) -> Function:
    def call(left: Any, right: Any) -> int:
        for value in (left, right):
            if type(value) is not int:
                raise FaultError(f"cannot use {type_name(value)} as argument (type int) to call {name}")
        if name.startswith("bits") or name == "bitushr":
            if right < 0:
                raise FaultError(f"invalid operation: negative shift count {right} (type int)")
            right = min(right, 64)
        return wrapped(operate(left, right))

    return Function(call, (((INT, INT), INT),))


def _bitnot(value: Any) -> int:
    if type(value) is not int:
        raise FaultError(f"cannot use {type_name(value)} as argument (type int) to call bitnot")
    return ~value


_TEXT_TO_TEXT = (((TEXT,), TEXT),)
_TWO_TEXTS = ((TEXT, TEXT), TEXT)
_TRIM_ENDS = (_TWO_TEXTS, ((TEXT,), TEXT))
_SPLITS = (((TEXT, TEXT), TEXTS), ((TEXT, TEXT, INT), TEXTS))
_JOINS = (((TEXTS, TEXT), TEXT), ((LIST, TEXT), TEXT), ((LIST,), TEXT), ((TEXTS, TEXT), TEXT), ((TEXTS,), TEXT))
_REPLACES = (((TEXT, TEXT, TEXT, INT), TEXT), ((TEXT, TEXT, TEXT), TEXT))
_SORTED = (LIST, "[]int", "[]float64", TEXTS)
_SORTS = (*(((items, TEXT), LIST) for items in _SORTED), *(((items,), LIST) for items in (LIST, *_SORTED[:0:-1])))

FUNCTIONS: dict[str, Function] = {
    "len": Function(_length),
    "type": Function(_type, (((ANY,), TEXT),)),
    "abs": Function(_abs),
    "ceil": Function(_rounding("ceil", lambda x: float(math.ceil(x)))),
    "floor": Function(_rounding("floor", lambda x: float(math.floor(x)))),
    "round": Function(_rounding("round", lambda x: math.copysign(math.floor(abs(x) + 0.5), x))),
    "int": Function(integer),
    "float": Function(floating),
    "string": Function(text, (((ANY,), TEXT),)),
    "trim": Function(lambda s, cut=SPACES: s.strip(cut) if cut else s, (*_TEXT_TO_TEXT, _TWO_TEXTS)),
    "trimPrefix": Function(lambda s, prefix=" ": s.removeprefix(prefix), _TRIM_ENDS),
    "trimSuffix": Function(lambda s, suffix=" ": s.removesuffix(suffix), _TRIM_ENDS),
    "upper": Function(upper, _TEXT_TO_TEXT),
    "lower": Function(lower, _TEXT_TO_TEXT),
    "split": Function(split, _SPLITS),
    "splitAfter": Function(lambda s, sep, most=-1: split(s, sep, most, keep=True), _SPLITS),
    "replace": Function(lambda s, old, new, times=-1: s.replace(old, new, to_int(times)), _REPLACES),
    "repeat": Function(repeat, (((TEXT, INT), TEXT),)),
    "join": Function(_join, _JOINS),
    "indexOf": Function(_index, (((TEXT, TEXT), INT),)),
    "lastIndexOf": Function(_last_index, (((TEXT, TEXT), INT),)),
    "hasPrefix": Function(str.startswith, (((TEXT, TEXT), BOOL),)),
    "hasSuffix": Function(str.endswith, (((TEXT, TEXT), BOOL),)),
    "max": Function(lists.extreme("max", less)),
    "min": Function(lists.extreme("min", lambda a, b: less(b, a))),
    "mean": Function(lists.mean),
    "median": Function(lists.median),
    "toJSON": Function(lambda value: to_json(value, indent="  "), (((ANY,), TEXT),)),
    "fromJSON": Function(from_json, (((TEXT,), ANY),)),
    "toBase64": Function(lambda s: binascii.b2a_base64(s.encode(), newline=False).decode(), _TEXT_TO_TEXT),
    "fromBase64": Function(from_base64, _TEXT_TO_TEXT),
    "first": Function(lists.at_place(0)),
    "last": Function(lists.at_place(-1)),
    "get": Function(lists.get),
    "take": Function(lists.take),
    "keys": Function(lambda value: list(lists.of_map("get keys from", value))),
    "values": Function(lambda value: list(lists.of_map("get values from", value).values())),
    "toPairs": Function(lambda value: [[k, v] for k, v in lists.of_map("transform to pairs", value).items()]),
    "fromPairs": Function(lists.from_pairs),
    "reverse": Function(lambda value: lists.of_list("reverse", value)[::-1]),
    "uniq": Function(lists.unique),
    "concat": Function(lists.concat),
    "flatten": Function(lists.flatten),
    "sort": Function(lists.sort, _SORTS),
    "bitand": _bits("bitand", lambda a, b: a & b),
    "bitor": _bits("bitor", lambda a, b: a | b),
    "bitxor": _bits("bitxor", lambda a, b: a ^ b),
    "bitnand": _bits("bitnand", lambda a, b: a & ~b),
    "bitshl": _bits("bitshl", lambda a, b: a << b),
    "bitshr": _bits("bitshr", lambda a, b: a >> b),
    "bitushr": _bits("bitushr", lambda a, b: (a % 2**64) >> b),
    "bitnot": Function(_bitnot, (((INT,), INT),)),
}  # fmt: skip
NAMES = frozenset((*FUNCTIONS, *NOT_EXECUTED))
