"""JSONPath as Argo's `jsonpath` function has it: keys, indices, ranges, unions, `*`, `..` and `length`; no filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .errors import FaultError
from .values import from_json, kind

Rest = list["_Step"]
_Step = Callable[[Any, "Rest"], Any]

_PIECE = re.compile(r"""\.\.|\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^]'"])*\]|\.?[^.[]+|\.(?=\[)|.""", re.DOTALL)
_ARGUMENT = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,'"]*?)\s*(?:,|$)""")


def jsonpath(document: str, path: str) -> Any:
    """What `path` finds in a JSON text. Raises FaultError."""
    data = from_json(document)
    steps = _steps(path)
    return _go(data, steps)


def _go(value: Any, steps: Rest) -> Any:
    return steps[0](value, steps[1:]) if steps else value


def _steps(path: str) -> Rest:
    said = f"invalid JSONPath selector '{path}'"
    if not path.startswith("$"):
        raise FaultError(f"{said} unexpected token '{path[:1]}' at index 0")
    if len(path) > 1 and path[1] not in ".[":
        raise FaultError(f"{said} unexpected token '{path[1]}' at index 1")
    steps: Rest = []
    for piece in _PIECE.findall(path, 1):
        if piece == ".":
            continue
        try:
            steps.append(_step(piece if piece == ".." else piece.removeprefix(".").strip()))
        except FaultError as error:
            raise FaultError(f"{said} {error}") from None
    return steps


def _step(token: str) -> _Step:
    if token == "..":
        return _recursive
    if token in ("*", "[*]"):
        return _each
    if not token.startswith("["):
        return _length if token == "length" else _key(token)
    inner = token[1:-1].strip()
    if not token.endswith("]") or not inner:
        raise FaultError(f"invalid token. '{token}' does not match any token format")
    if inner.startswith(("?", "(")):
        raise FaultError(f"'{token}': filters and scripts are not executed by the embedded engine")
    return _subscript(inner, token)


def _subscript(inner: str, token: str) -> _Step:
    if inner == "*":
        return _each
    numbers = [part.strip() for part in inner.split(":")]
    if 2 <= len(numbers) <= 3 and all(re.fullmatch(r"-?\d*", part) for part in numbers):
        return _range(*(int(part) if part else None for part in numbers))
    arguments = [_argument(part, token) for part in _ARGUMENT.findall(inner) if part] or [_argument("", token)]
    if len(arguments) == 1:
        only = arguments[0]
        return _index(only) if isinstance(only, int) else _key(only)
    if len({type(argument) for argument in arguments}) > 1:
        raise FaultError("union: invalid token argument. expected [string] got [int]")
    return _union(arguments)


def _argument(written: str, token: str) -> int | str:
    if re.fullmatch(r"[+-]?\d+", written):
        return int(written)
    if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"":
        return written[1:-1].replace(f"\\{written[0]}", written[0])
    raise FaultError(f"invalid token. '{token}' does not match any token format")


def _wrong_target(step: str, value: Any, *wanted: str) -> FaultError:
    found = "nil" if value is None else kind(value)
    return FaultError(f"{step}: invalid token target. expected [{' '.join(wanted)}] got [{found}]")


def _key(name: str) -> _Step:
    def step(value: Any, rest: Rest) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong_target("key", value, "map")
        if name not in value:
            raise FaultError(f"key: invalid token key '{name}' not found")
        return _go(value[name], rest)

    return step


class _Indexed:
    """The step to one item of a list: the one kind of step that takes what a range or union found as a whole."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, value: Any, rest: Rest) -> Any:
        if not isinstance(value, list):
            raise _wrong_target("index", value, "array", "slice")
        at = self.index + len(value) if self.index < 0 else self.index
        if not 0 <= at < len(value):
            raise FaultError("index: invalid token out of range")
        return _go(value[at], rest)


def _index(index: int) -> _Step:
    return _Indexed(index)


def _length(value: Any, rest: Rest) -> Any:
    if not isinstance(value, (Mapping, list, str)):
        raise _wrong_target("length", value, "array", "map", "slice", "string")
    length = len(value.encode()) if isinstance(value, str) else len(value)
    return _go(value.get("length", length) if isinstance(value, Mapping) else length, rest)


def _members(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [value[name] for name in sorted(value)]
    return value if isinstance(value, list) else []


def _tried(value: Any, rest: Rest) -> Any:
    """Where the way ends, there is nothing."""
    try:
        return _go(value, rest)
    except FaultError:
        return None


def _each(value: Any, rest: Rest) -> list[Any]:
    if not isinstance(value, (Mapping, list)):
        raise _wrong_target("wildcard", value, "array", "map", "slice")
    if not rest:
        return list(_members(value))
    return [found for member in _members(value) if (found := _tried(member, rest)) is not None]


def _recursive(value: Any, rest: Rest) -> list[Any]:
    if value is None:
        return []
    found = _tried(value, rest)
    own = list(found) if isinstance(found, list) and rest else [] if found is None else [found]
    return own + [item for member in _members(value) for item in _recursive(member, rest)]


def _on_all(items: list[Any], rest: Rest) -> Any:
    if not rest:
        return items
    if isinstance(rest[0], _Indexed):
        return _go(items, rest)
    return [found for item in items if (found := _tried(item, rest)) is not None]


def _range(start: int | None, end: int | None = None, stride: int | None = None) -> _Step:
    def step(value: Any, rest: Rest) -> Any:
        if not isinstance(value, list):
            raise _wrong_target("range", value, "array", "slice")
        if stride == 0:
            raise FaultError("range: invalid token out of range")
        chosen = value[slice(start, end)]
        by = stride or 1
        return _on_all(chosen[::by] if by > 0 else chosen[::-1][::-by], rest)

    return step


def _union(wanted: list[Any]) -> _Step:
    by_name = isinstance(wanted[0], str)

    def step(value: Any, rest: Rest) -> Any:
        if by_name:
            if not isinstance(value, Mapping):
                raise _wrong_target("union", value, "map")
            return _on_all([value[name] for name in wanted if name in value], rest)
        if not isinstance(value, list):
            raise _wrong_target("union", value, "array", "slice")
        places = [at + len(value) if at < 0 else at for at in wanted]
        return _on_all([value[at] for at in places if 0 <= at < len(value)], rest)

    return step
