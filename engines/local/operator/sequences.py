"""`withSequence`: numbers from one to another, each in a Go format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .jsontext import quoted, read

MOST_ITEMS = 100_000

_VERB = re.compile(r"%([-+# 0]*)(\d+)?(?:\.(\d+)?)?(.)", re.DOTALL)
_BASES = {"d": "d", "v": "d", "b": "b", "o": "o", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}


def items(sequence: Mapping[str, Any]) -> list[Any]:
    """Raises ValueError."""

    def number(key: str) -> int:
        written = str(sequence[key])
        if not re.fullmatch(r"[+-]?\d+", written):
            raise ValueError(f'strconv.Atoi: parsing "{written}": invalid syntax')
        return int(written)

    start = number("start") if sequence.get("start") is not None else 0
    if sequence.get("end") is not None:
        end = number("end")
    elif sequence.get("count") is not None:
        count = number("count")
        if count == 0:
            return []
        end = start + count - 1
    else:
        raise ValueError("neither end nor count was specified in withSequence")
    if abs(end - start) >= MOST_ITEMS:
        raise ValueError(f"withSequence: {abs(end - start) + 1} items; the most is {MOST_ITEMS}")
    form = sequence.get("format") or "%d"
    numbers = range(start, end + 1) if start <= end else range(start, end - 1, -1)
    return [read(f'"{formatted(form, value)}"') for value in numbers]


def formatted(form: str, value: int) -> str:
    """`fmt.Sprintf(form, value)`."""
    used = False

    def verb(match: re.Match[str]) -> str:
        nonlocal used
        flags, width, precision, letter = match.groups()
        if letter == "%":
            return "%"
        if used:
            return f"%!{letter}(MISSING)"
        used = True
        return _padded(_shown(letter, flags, precision, value), flags, width, letter in _BASES and precision is None)

    done = _VERB.sub(verb, form)
    if form.replace("%%", "").endswith("%"):
        done += "!(NOVERB)"
    return done if used else f"{done}%!(EXTRA int={value})"


def _shown(letter: str, flags: str, precision: str | None, value: int) -> str:
    if letter in _BASES:
        digits = format(abs(value), _BASES[letter])
        if precision is not None:
            digits = digits.rjust(int(precision), "0")
        sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
        return sign + (_PREFIXES.get(letter, "") if "#" in flags else "") + digits
    if letter == "c":
        return chr(value) if 0 <= value < 0x110000 else "\ufffd"
    if letter == "q":
        shown = quoted(chr(value))[1:-1] if 0 <= value < 0x110000 else "\ufffd"
        return f"'{shown}'"
    if letter == "U":
        return f"U+{value % 2**64:04X}"
    return f"%!{letter}(int={value})"


def _padded(shown: str, flags: str, width: str | None, zeros: bool) -> str:
    if width is None:
        return shown
    if "-" in flags:
        return shown.ljust(int(width))
    if "0" in flags and zeros:
        sign = shown[0] if shown[:1] in ("-", "+", " ") else ""
        return sign + shown[len(sign) :].rjust(int(width) - len(sign), "0")
    return shown.rjust(int(width))
