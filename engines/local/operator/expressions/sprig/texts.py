"""Sprig's functions on text: the text comes last, so that it may come through a pipe."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
import zlib
from collections.abc import Callable
from typing import Any

from ..builtins import SPACES, from_base64, lower, repeat, split, upper
from ..errors import FaultError
from ..regex import compiled
from .function import ANY, INT, TEXT, Function
from .values import texts_of, to_text

_WORD_START = re.compile(r"(?<![\w'’])[^\W\d_]")


def _base32(value: str) -> str:
    try:
        return base64.b32decode(value).decode(errors="replace")
    except ValueError:
        return f"illegal base32 data at input byte {len(value.rstrip('=')) // 8 * 8}"


def _base64(value: str) -> str:
    try:
        return from_base64(value)
    except FaultError as error:
        return str(error)


def _bytes(value: str, cut: Callable[[bytes], bytes]) -> str:
    return cut(value.encode()).decode(errors="replace")


def _trunc(count: int, value: str) -> str:
    length = len(value.encode())
    if count < 0:
        return _bytes(value, lambda b: b[count:]) if length + count > 0 else value
    return _bytes(value, lambda b: b[:count]) if length > count else value


def _substr(start: int, end: int, value: str) -> str:
    length = len(value.encode())
    first, last = (0, end) if start < 0 else (start, length if end < 0 or end > length else end)
    if not 0 <= first <= last <= length:
        bounds = f"[:{last}] with length {length}" if not 0 <= last <= length else f"[{first}:{last}]"
        raise FaultError(f"runtime error: slice bounds out of range {bounds}")
    return _bytes(value, lambda b: b[first:last])


def _quoted(*values: Any) -> str:
    return " ".join(json.dumps(to_text(value), ensure_ascii=False) for value in values if value is not None)


def _indent(spaces: int, value: str) -> str:
    pad = " " * spaces
    return pad + value.replace("\n", "\n" + pad)


def _title(value: str) -> str:
    return _WORD_START.sub(lambda match: match[0].upper(), value)


def _numbered(parts: list[str]) -> dict[str, str]:
    return {f"_{index}": part for index, part in enumerate(parts)}


def _expanded(match: re.Match[str], template: str) -> str:
    """`$1`, `${1}`, `$name` of what was found; `$$` is a dollar."""

    def part(reference: re.Match[str]) -> str:
        if reference[0] == "$$":
            return "$"
        name = reference[1] or reference[2]
        try:
            return match[int(name) if name.isdigit() else name] or ""
        except IndexError:
            return ""

    return re.sub(r"\$(?:\$|\{(\w+)\}|(\w+))", part, template, flags=re.ASCII)


def _replace_all(pattern: str, value: str, by: str) -> str:
    return compiled(pattern).sub(lambda match: _expanded(match, by), value)


def _find_all(pattern: str, value: str, most: int) -> list[str] | None:
    found = [match[0] for match in compiled(pattern).finditer(value)]
    return (found if most < 0 else found[:most]) or None


def _find(pattern: str, value: str) -> str:
    match = compiled(pattern).search(value)
    return match[0] if match else ""


def _regex_split(pattern: str, value: str, most: int) -> list[str] | None:
    if most == 0:
        return None
    parts: list[str] = []
    at = 0
    for match in compiled(pattern).finditer(value):
        if 0 < most <= len(parts) + 1:
            break
        if match.end() == 0 or (match[0] == "" and match.start() in (at, len(value)) and match.start() != 0):
            continue
        parts.append(value[at : match.start()])
        at = match.end()
    return [*parts, value[at:]]


def _matches(pattern: str, value: str) -> bool:
    try:
        return compiled(pattern).search(value) is not None
    except FaultError as error:
        if "not executed" in str(error):
            raise
        return False


def _or_panic(call: Callable[..., Any]) -> Callable[..., Any]:
    """As `call`, but a wrong pattern is told in other words."""

    def checked(pattern: str, *rest: Any) -> Any:
        try:
            return call(pattern, *rest)
        except FaultError as error:
            raise FaultError(f"regexp: Compile(`{pattern}`): {error}") from None

    return checked


def _hash(name: str) -> Callable[[str], str]:
    return lambda value: hashlib.new(name, value.encode()).hexdigest()


def _clean(path: str) -> str:
    return posixpath.normpath(path).replace("//", "/") if path else "."


def _base(path: str) -> str:
    if not path:
        return "."
    return posixpath.basename(path.rstrip("/")) or "/"


def _dir(path: str) -> str:
    return _clean(path[: path.rfind("/") + 1])


def _ext(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[name.rfind(".") :] if "." in name else ""


_TRIM_ALL = Function(lambda cut, value: value.strip(cut) if cut else value, TEXT, TEXT)
_REGEXES: dict[str, tuple[Any, ...]] = {
    "regexFind": (_find, TEXT, TEXT),
    "regexFindAll": (_find_all, TEXT, TEXT, INT),
    "regexReplaceAll": (_replace_all, TEXT, TEXT, TEXT),
    "regexReplaceAllLiteral": (lambda p, s, by: compiled(p).sub(lambda _: by, s), TEXT, TEXT, TEXT),
    "regexSplit": (_regex_split, TEXT, TEXT, INT),
}
_PATHS: dict[str, Callable[[str], Any]] = {
    "base": _base, "dir": _dir, "clean": _clean, "ext": _ext, "isAbs": lambda path: path.startswith("/"),
}  # fmt: skip

FUNCTIONS: dict[str, Function] = {
    **{name: Function(_or_panic(call), *takes) for name, (call, *takes) in _REGEXES.items()},
    **{f"must{name[0].upper()}{name[1:]}": Function(call, *takes) for name, (call, *takes) in _REGEXES.items()},
    "regexMatch": Function(_matches, TEXT, TEXT),
    "mustRegexMatch": Function(lambda pattern, value: compiled(pattern).search(value) is not None, TEXT, TEXT),
    "regexQuoteMeta": Function(lambda value: re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value), TEXT),
    **{name: Function(call, TEXT) for name, call in _PATHS.items()},
    **{f"os{name[0].upper()}{name[1:]}": Function(call, TEXT) for name, call in _PATHS.items()},
    "trim": Function(lambda value: value.strip(SPACES), TEXT),
    "trimAll": _TRIM_ALL,
    "trimall": _TRIM_ALL,
    "trimPrefix": Function(lambda prefix, value: value.removeprefix(prefix), TEXT, TEXT),
    "trimSuffix": Function(lambda suffix, value: value.removesuffix(suffix), TEXT, TEXT),
    "upper": Function(upper, TEXT),
    "lower": Function(lower, TEXT),
    "title": Function(_title, TEXT),
    "untitle": Function(lambda value: value[:1].lower() + value[1:], TEXT),
    "nospace": Function(lambda value: "".join(value.split()), TEXT),
    "repeat": Function(lambda count, value: repeat(value, count), INT, TEXT),
    "substr": Function(_substr, INT, INT, TEXT),
    "trunc": Function(_trunc, INT, TEXT),
    "contains": Function(lambda part, value: part in value, TEXT, TEXT),
    "hasPrefix": Function(lambda prefix, value: value.startswith(prefix), TEXT, TEXT),
    "hasSuffix": Function(lambda suffix, value: value.endswith(suffix), TEXT, TEXT),
    "quote": Function(_quoted, more=ANY),
    "squote": Function(lambda *values: " ".join(f"'{to_text(v)}'" for v in values if v is not None), more=ANY),
    "cat": Function(lambda *values: " ".join(to_text(v) for v in values if v is not None), more=ANY),
    "indent": Function(_indent, INT, TEXT),
    "nindent": Function(lambda spaces, value: "\n" + _indent(spaces, value), INT, TEXT),
    "replace": Function(lambda old, new, value: value.replace(old, new), TEXT, TEXT, TEXT),
    "plural": Function(lambda one, many, count: one if count == 1 else many, TEXT, TEXT, INT),
    "join": Function(lambda glue, values: glue.join(texts_of(values)), TEXT, ANY),
    "split": Function(lambda separator, value: _numbered(split(value, separator)), TEXT, TEXT),
    "splitn": Function(lambda separator, most, value: _numbered(split(value, separator, most)), TEXT, INT, TEXT),
    "splitList": Function(lambda separator, value: split(value, separator), TEXT, TEXT),
    "b64enc": Function(lambda value: base64.b64encode(value.encode()).decode(), TEXT),
    "b64dec": Function(_base64, TEXT),
    "b32enc": Function(lambda value: base64.b32encode(value.encode()).decode(), TEXT),
    "b32dec": Function(_base32, TEXT),
    "sha1sum": Function(_hash("sha1"), TEXT),
    "sha256sum": Function(_hash("sha256"), TEXT),
    "sha512sum": Function(_hash("sha512"), TEXT),
    "adler32sum": Function(lambda value: str(zlib.adler32(value.encode())), TEXT),
}
