"""The words of a `when` (govaluate 3), and which may follow which."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from .errors import FaultError
from .regex import compiled
from .values import text

PREFIX, NUMERIC, BOOLEAN, STRING, PATTERN, TIME = "PREFIX", "NUMERIC", "BOOLEAN", "STRING", "PATTERN", "TIME"
VARIABLE, SEPARATOR, ACCESSOR, COMPARATOR = "VARIABLE", "SEPARATOR", "ACCESSOR", "COMPARATOR"
LOGICAL, MODIFIER, CLAUSE, CLOSE, TERNARY = "LOGICALOP", "MODIFIER", "CLAUSE", "CLAUSE_CLOSE", "TERNARY"

_START = "UNKNOWN"
_VALUES = (NUMERIC, BOOLEAN, VARIABLE, ACCESSOR, STRING, CLAUSE)
_AFTER_VALUE = (MODIFIER, COMPARATOR, LOGICAL, CLOSE, SEPARATOR)
_NEXT: dict[str, tuple[str, ...]] = {
    _START: (PREFIX, *_VALUES, PATTERN, TIME),
    CLAUSE: (PREFIX, *_VALUES, PATTERN, TIME, CLOSE),
    CLOSE: (*_AFTER_VALUE, NUMERIC, BOOLEAN, VARIABLE, STRING, PATTERN, TIME, CLAUSE, TERNARY),
    **dict.fromkeys((NUMERIC, BOOLEAN, STRING, VARIABLE), (*_AFTER_VALUE, TERNARY)),
    **dict.fromkeys((TIME, PATTERN), _AFTER_VALUE),
    MODIFIER: (PREFIX, *_VALUES, CLOSE),
    COMPARATOR: (PREFIX, *_VALUES, TIME, CLOSE, PATTERN),
    LOGICAL: (PREFIX, *_VALUES, TIME, CLOSE),
    PREFIX: (NUMERIC, BOOLEAN, VARIABLE, ACCESSOR, CLAUSE, CLOSE),
    TERNARY: (PREFIX, *_VALUES, TIME, SEPARATOR),
    ACCESSOR: (CLAUSE, *_AFTER_VALUE, TERNARY),
    SEPARATOR: (PREFIX, *_VALUES, TIME),
}
_MAY_END = (CLOSE, NUMERIC, BOOLEAN, STRING, TIME, PATTERN, VARIABLE, ACCESSOR)
_SYMBOLS = (
    (MODIFIER, ("+", "-", "*", "/", "%", "**", "&", "|", "^", ">>", "<<")),
    (LOGICAL, ("&&", "||")),
    (COMPARATOR, ("==", "!=", ">", ">=", "<", "<=", "=~", "!~")),
    (TERNARY, ("?", ":", "??")),
)
_PREFIXES = ("-", "!", "~")


class Token(NamedTuple):
    kind: str
    value: Any


def tokens(source: str) -> list[Token]:
    """Raises FaultError."""
    reader, found, state = _Reader(source), list[Token](), _START
    while (token := reader.token(state)) is not None:
        found.append(token)
        state = token.kind
    if sum((token.kind == CLAUSE) - (token.kind == CLOSE) for token in found):
        raise FaultError("Unbalanced parenthesis")
    return found


def checked(found: list[Token]) -> list[Token]:
    """`found`, if it is in an order that makes sense, its patterns compiled. Raises FaultError."""
    before = Token(_START, None)
    for token in found:
        if token.kind not in _NEXT[before.kind]:
            if before.kind == VARIABLE and token.kind == CLAUSE:
                raise FaultError(f"Undefined function {before.value}")
            way = f"{_shown(before)} to {_shown(token)}"
            raise FaultError(f"Cannot transition token types from {way}")
        before = token
    if before.kind not in _MAY_END:
        raise FaultError("Unexpected end of expression")
    done = list(found)
    for at, (one, other) in enumerate(pairwise(found)):
        if one.kind == COMPARATOR and one.value in ("=~", "!~") and other.kind == STRING:
            done[at + 1] = Token(PATTERN, compiled(other.value))
    return done


def _shown(token: Token) -> str:
    if token.kind in (CLAUSE, CLOSE):
        return f"{token.kind} [{ord(token.value)}]"  # a character prints as its number
    if token.kind == ACCESSOR:
        return f"{token.kind} [[{' '.join(token.value)}]]"
    return f"{token.kind} [{text(token.value)}]"


class _Reader:
    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0

    def token(self, state: str) -> Token | None:
        while self.at < len(self.source) and self.source[self.at].isspace():
            self.at += 1
        if self.at >= len(self.source):
            return None
        character = self.source[self.at]
        if character.isdigit() or character == ".":
            return self.number()
        if character == ",":
            self.at += 1
            return Token(SEPARATOR, ",")
        if character == "[":
            self.at += 1
            return Token(VARIABLE, self.quoted(lambda c: c != "]", "Unclosed parameter bracket"))
        if character.isalpha():
            return self.word()
        if character in "'\"":
            self.at += 1
            value = self.quoted(lambda c: c not in "'\"", "Unclosed string literal")
            seconds = time_of(value)
            return Token(STRING, value) if seconds is None else Token(TIME, seconds)
        if character in "()":
            self.at += 1
            return Token(CLAUSE if character == "(" else CLOSE, character)
        return self.symbol(state)

    def read(self, fits: Callable[[str], bool], *, spaces: bool = False) -> tuple[str, bool]:
        """What fits, a backslash makes anything fit; and whether something that doesn't came after it."""
        read = ""
        while self.at < len(self.source):
            character = self.source[self.at]
            self.at += 1
            if character == "\\" and self.at < len(self.source):
                read += self.source[self.at]
                self.at += 1
            elif character.isspace() and not spaces:
                if read:
                    return read, True
            elif fits(character):
                read += character
            else:
                self.at -= 1
                return read, True
        return read, False

    def quoted(self, fits: Callable[[str], bool], unclosed: str) -> str:
        read, closed = self.read(fits, spaces=True)
        if not closed:
            raise FaultError(unclosed)
        self.at += 1
        return read

    def number(self) -> Token:
        if hexadecimal := re.compile(r"0x").match(self.source, self.at):
            self.at = hexadecimal.end()
            read, _ = self.read(lambda c: c.isdigit() or c.lower() in "abcdef")
            if not re.fullmatch(r"[0-9a-fA-F]{1,16}", read):
                raise FaultError(f"Unable to parse hex value '{read}' to uint64\n")
            return Token(NUMERIC, float(int(read, 16)))
        read, _ = self.read(lambda c: c.isdigit() or c == ".")
        try:
            return Token(NUMERIC, float(read))
        except ValueError:
            raise FaultError(f"Unable to parse numeric value '{read}' to float64\n") from None

    def word(self) -> Token:
        word, _ = self.read(lambda c: c.isalpha() or c.isdigit() or c in "_.")
        if word in ("true", "false"):
            return Token(BOOLEAN, word == "true")
        if word in ("in", "IN"):
            return Token(COMPARATOR, "in")
        if "." not in word[1:]:
            return Token(VARIABLE, word)
        if word.endswith("."):
            raise FaultError(f"Hanging accessor on token '{word}'")
        parts = word.split(".")
        for part in parts[1:]:
            if part[:1].upper() != part[:1]:
                raise FaultError(f"Unable to access unexported field '{part}' in token '{word}'")
        return Token(ACCESSOR, tuple(parts))

    def symbol(self, state: str) -> Token:
        read, _ = self.read(lambda c: not (c.isdigit() or c.isalpha() or c in "()[]'\""))
        if PREFIX in _NEXT[state] and read in _PREFIXES:
            return Token(PREFIX, read)
        for kind, known in _SYMBOLS:
            if read in known:
                return Token(kind, read)
        raise FaultError(f"Invalid token: '{read}'")


_DATE = r"\d{4}-\d{2}-\d{2}"
_ISO = re.compile(
    rf"{_DATE}(?: \d{{2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?(?:[+-]\d{{2}}:\d{{2}})?)?"
    r"|T\d{2}(?::\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{4})|T\d{2}:\d{2}:\d{2}(?:[.,]\d+)?[+-]\d{2}:\d{2})?"
)
_OTHERS = ("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S UTC %Y", "%a %b %d %H:%M:%S %z %Y")


def time_of(written: str) -> float | None:
    """The Unix time that quoted text says, whole seconds; None: it is no time. Without a zone, UTC is meant."""
    try:
        if _ISO.fullmatch(written):
            moment = datetime.fromisoformat(written.replace(",", "."))
        elif re.fullmatch(r"(?:0?[1-9]|1[0-2]):\d{2}[AP]M", written):
            moment = datetime.strptime(written, "%I:%M%p").replace(year=1)
            return float((moment - datetime(1, 1, 1)).total_seconds() // 1 - 62167219200)  # the year 0
        elif re.match(r"[A-Z][a-z]{2} [A-Z][a-z]{2} ", written):
            moment = next(filter(None, (_parsed(written, form) for form in _OTHERS)), None) or datetime.min
            if moment == datetime.min:
                return None
        else:
            return None
    except ValueError:
        return None
    return float((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // 1)


def _parsed(written: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(written, form)
    except ValueError:
        return None
