"""The words of an expression (expr-lang 1.17)."""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import located

NAME, NUMBER, STRING, OPERATOR, BRACKET, END = "Identifier", "Number", "String", "Operator", "Bracket", "EOF"

_SPACE = re.compile(r"\s+|//[^\n]*\n?|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+"
    r"|(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]*)?"
)
_BRACKETS = re.compile(r"[][(){}]")
_OPERATORS = re.compile(r"\?\.|\?\?|\?|\|\||\||::|:|[,;%+\-^]|[&!=*<>][&=*]?|\.\.|\.|/|##|#")
_WORD_OPERATORS = (
    "not", "in", "or", "and", "matches", "contains", "startsWith", "endsWith", "let", "if", "else",
)  # fmt: skip
_RAW = re.compile(r"`((?:[^`]|``)*)`")
_QUOTED = re.compile(r"""(["'])((?:[^\\\n]|\\.)*?)\1""", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:([xX])([0-9a-fA-F]{2})|u\{([0-9a-fA-F]{1,6})\}|(u)([0-9a-fA-F]{4})|(U)([0-9a-fA-F]{8})"
    r"|([0-3][0-7]{2})|([abfnrtv\\'\"`?])|(.|$))",
    re.DOTALL,
)
_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MOST_OF_UNICODE = 0x10FFFF


class Token(NamedTuple):
    """`at` is the place of its first character in the source."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return self.kind if self.kind == END else f'{self.kind}("{self.text}")'


def tokens(source: str) -> list[Token]:
    """All tokens, and one for the end. Raises ExpressionError."""
    found: list[Token] = []
    at = 0
    while True:
        while space := _SPACE.match(source, at):
            at = space.end()
        if at >= len(source):
            found.append(Token(END, "", max(len(source) - 1, 0)))
            return found
        token, at = _next(source, at)
        found.append(token)
        if token.text == "#" and (word := re.compile(r"[\w$]+").match(source, at)):  # #index, #acc
            found.append(Token(NAME, word[0], at))
            at = word.end()


def _next(source: str, at: int) -> tuple[Token, int]:
    if source[at] in "'\"":
        quoted = _QUOTED.match(source, at)
        if quoted is None:
            raise located("literal not terminated", source, _end_of_line(source, at))
        return Token(STRING, _unescaped(quoted[2], source, at + 1), at), quoted.end()
    if source[at] == "`":
        raw = _RAW.match(source, at)
        if raw is None:
            raise located("literal not terminated", source, len(source))
        return Token(STRING, raw[1].replace("``", "`"), at), raw.end()
    if source.startswith("/*", at):
        raise located("unclosed comment", source, len(source))
    if number := _NUMBER.match(source, at):
        after = source[number.end() : number.end() + 1]
        if after == "_" or after == "$" or after.isalnum():
            text = source[at : number.end() + 1]
            raise located(f'bad number syntax: "{text}"', source, number.end())
        return Token(NUMBER, number[0], at), number.end()
    if word := _WORD.match(source, at):
        return Token(OPERATOR if word[0] in _WORD_OPERATORS else NAME, word[0], at), word.end()
    for kind, pattern in ((BRACKET, _BRACKETS), (OPERATOR, _OPERATORS)):
        if match := pattern.match(source, at):
            return Token(kind, match[0], at), match.end()
    raise located(f"unrecognized character: U+{ord(source[at]):04X} '{source[at]}'", source, at)


def _end_of_line(source: str, at: int) -> int:
    end = source.find("\n", at)
    return len(source) if end < 0 else end


def _unescaped(text: str, source: str, start: int) -> str:
    """`start`: where the text begins in the source."""
    end = start + len(text)

    def escape(match: re.Match[str]) -> str:
        code = match[2] or match[3] or match[5] or match[7]
        if code or match[8]:
            value = int(code, 16) if code else int(match[8], 8)
            if value > _MOST_OF_UNICODE:
                raise located("unable to unescape string", source, end)
            return chr(value)
        if match[9]:
            return _SHORT.get(match[9], match[9])
        raise located("invalid char escape", source, start + match.start() + 1)

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ESCAPE.sub(escape, text) if "\\" in text else text
