"""JSON as Argo hands it on: numbers as they were written, keys in their order, `<`, `>` and `&` escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .expressions.gojson import complaint
from .expressions.values import float_text, to_json

_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_ORDER = ("name", "default", "value", "valueFrom", "globalName", "enum", "description")
_SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_EXACT = 2**53  # above this a float, which Argo reads numbers as, misses some integers


class Number(float):
    """A number with the text that it was read from."""

    written = ""


def read(source: str) -> Any:
    """What JSON says. Raises ValueError with Go's words for text that says nothing."""
    try:
        return json.loads(source, parse_float=_number, parse_int=_number, parse_constant=_no_constant)
    except ValueError as error:
        raise ValueError(complaint(source) or str(error)) from None


def _number(written: str) -> Number:
    number = Number(written)
    number.written = written
    return number


def _no_constant(name: str) -> Any:
    raise json.JSONDecodeError(name, name, 0)


def write(value: Any, *, html: bool = True) -> str:
    """Compact JSON."""
    if isinstance(value, Number):
        return value.written
    if isinstance(value, str):
        written = json.dumps(value, ensure_ascii=False)
        return written.translate(_HTML) if html else written
    if isinstance(value, list):
        return f"[{','.join(write(item, html=html) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{write(key, html=html)}:{write(item, html=html)}' for key, item in value.items())}}}"
    return to_json(value)


def in_order(value: Any) -> Any:
    """`value` with the keys of its maps in order, as Kubernetes keeps what it doesn't know the kind of."""
    if isinstance(value, Mapping):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def parameters(declared: list[Any] | None) -> str:
    """A list of parameters, each with its values as text."""
    if not declared:
        return "null"
    found = []
    for parameter in declared:
        known = {key: parameter[key] for key in _ORDER if parameter.get(key) is not None}
        for key in ("default", "value", "description"):
            if key in known:
                known[key] = text(known[key])
        if "enum" in known:
            known["enum"] = [text(choice) for choice in known["enum"]]
        found.append(known)
    return write(found)


def text(value: Any) -> str:
    """A parameter's value, which YAML may have read as a number or a boolean, as the text that Argo makes of it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > _EXACT):
        return float_text(float(value), -400, 400)
    return str(value)


def quoted(value: str) -> str:
    """A text between quotes, as a Go program would have it."""
    return f'"{"".join(_escaped(character) for character in value)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    written = f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _SHORT.get(character, written)
