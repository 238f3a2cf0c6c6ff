"""What Go's reader of JSON says of a text that it can't read."""

from __future__ import annotations

from typing import NoReturn

_SPACE = " \t\r\n"
_DIGITS = "0123456789"
_WORDS = {"t": "true", "f": "false", "n": "null"}


def complaint(source: str) -> str:
    """The first thing wrong with `source`, in Go's words; '' if it is JSON."""
    try:
        _Scanner(source).whole()
    except _ComplaintError as error:
        return str(error)
    return ""


class _ComplaintError(ValueError):
    pass


class _Scanner:
    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0

    def whole(self) -> None:
        self.value()
        self.space()
        if self.at < len(self.source):
            self.fail("after top-level value")

    def value(self) -> None:
        self.space()
        first = self.peek()
        if first == "{":
            self.members()
        elif first == "[":
            self.items()
        elif first == '"':
            self.text()
        elif first and first in "-" + _DIGITS:
            self.number()
        elif first in _WORDS:
            self.word(_WORDS[first])
        else:
            self.fail("looking for beginning of value")

    def members(self) -> None:
        self.at += 1
        self.space()
        if self.take("}"):
            return
        while True:
            self.space()
            if self.peek() != '"':
                self.fail("looking for beginning of object key string")
            self.text()
            self.space()
            self.expect(":", "after object key")
            self.value()
            self.space()
            if self.take("}"):
                return
            self.expect(",", "after object key:value pair")

    def items(self) -> None:
        self.at += 1
        self.space()
        if self.take("]"):
            return
        while True:
            self.value()
            self.space()
            if self.take("]"):
                return
            self.expect(",", "after array element")

    def text(self) -> None:
        self.at += 1
        while not self.take('"'):
            if self.take("\\"):
                if self.take("u"):
                    for _ in range(4):
                        self.expect("0123456789abcdefABCDEF", "in \\u hexadecimal character escape")
                else:
                    self.expect('bfnrt\\/"', "in string escape code")
            elif self.peek() < " ":
                self.fail("in string literal")
            else:
                self.at += 1

    def number(self) -> None:
        self.take("-")
        if not self.take("0"):
            self.digits("in numeric literal")
        if self.take("."):
            self.digits("after decimal point in numeric literal")
        if self.take("eE"):
            self.take("+-")
            self.digits("in exponent of numeric literal")

    def digits(self, where: str) -> None:
        self.expect(_DIGITS, where)
        while self.take(_DIGITS):
            pass

    def word(self, word: str) -> None:
        self.at += 1
        for letter in word[1:]:
            self.expect(letter, f"in literal {word} (expecting '{letter}')")

    def space(self) -> None:
        while self.take(_SPACE):
            pass

    def peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def take(self, several: str) -> bool:
        found = self.peek()
        if not found or found not in several:
            return False
        self.at += 1
        return True

    def expect(self, several: str, where: str) -> None:
        if not self.take(several):
            self.fail(where)

    def fail(self, where: str) -> NoReturn:
        found = self.peek()
        if not found:
            raise _ComplaintError("unexpected end of JSON input")
        byte = chr(found.encode()[0])  # Go looks at bytes
        shown = {"'": "'\\''", '"': "'\"'"}.get(byte) or f"'{_escaped(byte)}'"
        raise _ComplaintError(f"invalid character {shown} {where}")


def _escaped(character: str) -> str:
    known = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = f"\\x{ord(character):02x}" if character < "\x7f" else f"\\u{ord(character):04x}"
    return known.get(character) or (character if character.isprintable() else code)
