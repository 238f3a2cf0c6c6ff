"""Regular expressions of Go (RE2), as Python's. What RE2 doesn't have is refused, what Python doesn't have, too."""

from __future__ import annotations

import re
from functools import lru_cache

from .errors import FaultError

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\\x00-\\x7f", "blank": "\\t ", "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_GROUP = re.compile(r"\(\?(?:P?<([A-Za-z_][A-Za-z0-9_]*)>|([imsU]*(?:-[imsU]+)?)([:)]))")
_SAME = set("dDwWsSbBAaftnrv")
_PIECE = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\x\{(?P<code>[0-9a-fA-F]+)\}|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<octal>[0-7]{3})"
    r"|\\(?P<escape>.)|(?P<posix>\[:\^?[a-z]*:\])|(?P<plain>.)",
    re.DOTALL,
)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """Raises FaultError."""
    try:
        return re.compile(_translated(pattern), re.ASCII)
    except re.error as error:
        raise FaultError(f"error parsing regexp: {_said(error, pattern)}") from None


def _said(error: re.error, pattern: str) -> str:
    """Go's words for what is wrong with a pattern."""
    at = error.pos or 0
    known = {
        "missing ), unterminated subpattern": f"missing closing ): `{pattern}`",
        "unbalanced parenthesis": f"unexpected ): `{pattern}`",
        "nothing to repeat": f"missing argument to repetition operator: `{pattern[at : at + 1]}`",
        "multiple repeat": f"invalid nested repetition operator: `{pattern[at - 1 : at + 1]}`",
    }
    return known.get(error.msg, f"{error.msg}: `{pattern}`")


def _translated(pattern: str) -> str:
    done: list[str] = []
    at, begun, in_class, lines = 0, 0, False, False
    while at < len(pattern):
        if not in_class and pattern.startswith("(?", at):
            group = _GROUP.match(pattern, at)
            if group is None:
                raise FaultError(f"error parsing regexp: invalid or unsupported Perl syntax: `{pattern[at : at + 3]}`")
            done.append(_group(group, pattern, at))
            lines = lines or "m" in (group[2] or "").partition("-")[0]
            at = group.end()
        elif not in_class and pattern[at] == "[":
            opening = re.compile(r"\[\^?\]?").match(pattern, at)
            assert opening is not None
            done.append(opening[0].replace("]", "\\]"))  # the first one is a member
            begun, at, in_class = at, opening.end(), True
        else:
            piece = _PIECE.match(pattern, at)
            assert piece is not None
            at = piece.end()
            in_class = in_class and piece["plain"] != "]"
            done.append("$" if lines and not in_class and piece["plain"] == "$" else _piece(piece, in_class))
    if in_class:
        raise FaultError(f"error parsing regexp: missing closing ]: `{pattern[begun:]}`")
    return "".join(done)


def _group(group: re.Match[str], pattern: str, at: int) -> str:
    if group[1]:
        return f"(?P<{group[1]}>"
    flags, closing = group[2], group[3]
    if "U" in flags:
        raise FaultError(f"the flag U of the pattern `{pattern}` is not executed by the embedded engine")
    if closing == ":":
        return f"(?{flags}:"
    # flags for the rest of a group: Python knows them at the very beginning alone
    if at > 0:
        raise FaultError(f"flags within the pattern `{pattern}` are not executed by the embedded engine")
    return f"(?{flags})"


def _piece(piece: re.Match[str], in_class: bool) -> str:
    if piece[0] == "\\":
        raise FaultError("error parsing regexp: trailing backslash at end of expression: ``")
    if piece["quoted"] is not None:
        return re.escape(piece["quoted"])
    for name, base in (("code", 16), ("hex", 16), ("octal", 8)):
        if piece[name]:
            return re.escape(chr(int(piece[name], base)))
    if piece["posix"]:
        return _posix(piece["posix"])
    escape = piece["escape"]
    if escape is not None:
        if escape == "z":
            return "\\Z"
        if escape in _SAME or not (escape.isalnum() and escape.isascii()):
            return "\\" + escape
        if escape in "pP":
            raise FaultError("the class \\p of a pattern is not executed by the embedded engine")
        raise FaultError(f"error parsing regexp: invalid escape sequence: `\\{escape}`")
    plain = str(piece["plain"])
    if in_class:
        return "\\" + plain if plain in "[&|~" else plain
    return "\\Z" if plain == "$" else plain


def _posix(name: str) -> str:
    known = _POSIX.get(name.strip("[:]"))
    if known is None:
        raise FaultError(f"error parsing regexp: invalid character class range: `{name}`")
    return known
