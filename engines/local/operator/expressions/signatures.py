"""What the functions of expr-lang take and give, as far as that depends on what they are given."""

from __future__ import annotations

from .natures import ANY_LIST, ANYTHING, BOOL, FLOAT, INT, TEXT, UNKNOWN, Nature, list_of, of_type

NUMBERS = ("int", "float64")

_ARRAYS = {
    "reverse": "cannot reverse", "uniq": "cannot uniq", "concat": "cannot concat", "flatten": "cannot flatten",
    "take": "cannot take from", "fromPairs": "cannot transform", "first": "cannot get first element from",
    "last": "cannot get last element from",
}  # fmt: skip
_MAPS = {"keys": "cannot get keys from", "values": "cannot get values from", "toPairs": "cannot transform"}


def of_predicate(name: str, holder: Nature, out: Nature, arguments: int) -> Nature:
    """What a function makes of a list, `out` being what its predicate makes of an item."""
    item = holder.held if holder.known else UNKNOWN
    if name in ("all", "none", "any", "one"):
        return BOOL
    if name in ("count", "findIndex", "findLastIndex"):
        return INT
    if name == "filter":
        return list_of(item)
    if name == "map":
        return list_of(out)
    if name == "groupBy":
        return Nature("map[interface {}][]interface {}")
    if name == "sortBy":
        return holder
    return out if name == "reduce" or (name == "sum" and arguments > 1) else item  # find, findLast, sum


def judged(name: str, given: list[Nature]) -> tuple[str, Nature]:
    """Functions that look at the types themselves: (what is wrong, the nature of the result)."""
    if name in ("max", "min", "mean", "median"):
        return _aggregate(name, given)
    if name == "concat":
        if not given:
            return "invalid number of arguments (expected at least 1, got 0)", UNKNOWN
    elif name in ("get", "take"):
        if len(given) != 2:
            return f"invalid number of arguments (expected 2, got {len(given)})", UNKNOWN
    elif len(given) != 1:
        return f"invalid number of arguments (expected 1, got {len(given)})", UNKNOWN
    first = given[0]
    if name == "get":
        return _getting(first, given[1])
    if name in _ARRAYS:
        for nature in given[:1] if name == "take" else given:
            if nature.known and not nature.list:
                extra = " from pairs" if name == "fromPairs" else ""
                return f"{_ARRAYS[name]} {nature.printed}{extra}", UNKNOWN
        return _of_lists(name, given)
    if name in _MAPS:
        extra = " to pairs" if name == "toPairs" else ""
        wrong = first.known and not first.map
        return f"{_MAPS[name]} {first.printed}{extra}" if wrong else "", ANY_LIST
    fits, nature = _OF_ONE[name]
    if first.known and not (first.go in fits or (name == "len" and (first.list or first.map))):
        return f"invalid argument for {name} (type {first.printed})", UNKNOWN
    return "", first if name == "abs" else nature


_OF_ONE: dict[str, tuple[tuple[str, ...], Nature]] = {
    "len": (("string",), INT),
    "abs": (NUMBERS, UNKNOWN),
    "ceil": (NUMBERS, FLOAT),
    "floor": (NUMBERS, FLOAT),
    "round": (NUMBERS, FLOAT),
    "int": ((*NUMBERS, "string"), INT),
    "float": ((*NUMBERS, "string"), FLOAT),
}


def _aggregate(name: str, given: list[Nature]) -> tuple[str, Nature]:
    if not given:
        return f"not enough arguments to call {name}", UNKNOWN
    for nature in given:
        if not nature.known or nature.list:
            return "", ANYTHING
        if not nature.number:
            return f"invalid argument for {name} (type {nature.printed})", UNKNOWN
    return "", given[0]


def _getting(holder: Nature, key: Nature) -> tuple[str, Nature]:
    if not holder.known:
        return "", UNKNOWN
    if holder.list:
        wrong = key.known and key != INT
        return f"non-integer slice index {key.says}" if wrong else "", holder.held
    if holder.map:
        wrong = key.known and key != TEXT and "map[string]" in holder.go
        return f"cannot use {key.says} to get an element from {holder.says}" if wrong else "", holder.held
    return f"type {holder.says} does not support indexing", UNKNOWN


def _of_lists(name: str, given: list[Nature]) -> tuple[str, Nature]:
    if name == "take":
        count = given[1]
        return (f"cannot take {count.printed} elements" if count.known and count != INT else ""), of_type(given[0].go)
    if name in ("first", "last"):
        return "", of_type(given[0].go).held
    return "", Nature("map[interface {}]interface {}") if name == "fromPairs" else ANY_LIST
