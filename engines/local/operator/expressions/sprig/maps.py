"""Sprig's functions on maps, and on addresses of files, which have the shape of one."""

from __future__ import annotations

from typing import Any

from ..errors import FaultError
from ..values import MAP, type_name
from .function import ANY, TEXT, Function
from .values import empty, to_text

Map = dict[str, Any]


def _dict(*arguments: Any) -> Map:
    keys = [to_text(key) for key in arguments[::2]]
    return dict(zip(keys, [*arguments[1::2], ""], strict=False))


def _set(map_: Map, key: str, value: Any) -> Map:
    map_[key] = value
    return map_


def _unset(map_: Map, key: str) -> Map:
    map_.pop(key, None)
    return map_


def _merged(target: Map, overwrite: bool, *sources: Map) -> Map:
    """Empty values give way to those of `sources`; with `overwrite`, all do."""
    for source in sources:
        for key, value in source.items():
            own = target.get(key)
            if isinstance(own, dict) and isinstance(value, dict):
                _merged(own, overwrite, value)
            elif key not in target or (not empty(value) if overwrite else empty(own)):
                target[key] = value
    return target


def _dig(*arguments: Any) -> Any:
    if len(arguments) < 3:
        raise FaultError("dig needs at least three arguments")
    *keys, default, found = arguments
    for key in keys:
        if not isinstance(found, dict):
            raise FaultError(f"interface conversion: interface {{}} is {_shown(found)}, not {MAP}")
        if not isinstance(key, str):
            raise FaultError(f"interface conversion: interface {{}} is {_shown(key)}, not string")
        if key not in found:
            return default
        found = found[key]
    return found


def _shown(value: Any) -> str:
    return "nil" if value is None else type_name(value)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


_MERGE = Function(lambda target, *sources: _merged(target, False, *sources), MAP, more=MAP)
_OVERWRITE = Function(lambda target, *sources: _merged(target, True, *sources), MAP, more=MAP)
_COPY = Function(_copied, ANY)

FUNCTIONS: dict[str, Function] = {
    "dict": Function(_dict, more=ANY),
    "get": Function(lambda map_, key: map_.get(key, ""), MAP, TEXT),
    "set": Function(_set, MAP, TEXT, ANY),
    "unset": Function(_unset, MAP, TEXT),
    "hasKey": Function(lambda map_, key: key in map_, MAP, TEXT),
    "pluck": Function(lambda key, *maps: [map_[key] for map_ in maps if key in map_], TEXT, more=MAP),
    "dig": Function(_dig, more=ANY),
    "merge": _MERGE,
    "mustMerge": _MERGE,
    "mergeOverwrite": _OVERWRITE,
    "mustMergeOverwrite": _OVERWRITE,
    "keys": Function(lambda *maps: [key for map_ in maps for key in map_], more=MAP),
    "values": Function(lambda map_: list(map_.values()), MAP),
    "pick": Function(lambda map_, *keys: {key: map_[key] for key in keys if key in map_}, MAP, more=TEXT),
    "omit": Function(lambda map_, *keys: {k: v for k, v in map_.items() if k not in keys}, MAP, more=TEXT),
    "deepCopy": _COPY,
    "mustDeepCopy": _COPY,
}
