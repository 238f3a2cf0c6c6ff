"""The tokens of an expression, one after the other, and what is said of one that doesn't fit."""

from __future__ import annotations

from .errors import ExpressionError, located
from .lexer import END, Token, tokens


class Reader:
    """Raises ExpressionError for a source that can't be taken apart."""

    def __init__(self, source: str) -> None:
        self.source, self.tokens = source, tokens(source)
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.token
        if token.kind == END:
            raise self.error("unexpected end of expression")
        self.at += 1
        return token

    def error(self, message: str, token: Token | None = None) -> ExpressionError:
        return located(message, self.source, (token or self.token).at)

    def unexpected(self) -> ExpressionError:
        return self.error(f"unexpected token {self.token}")

    def sees(self, kind: str, *texts: str) -> bool:
        return self.token.kind == kind and (not texts or self.token.text in texts)

    def takes(self, kind: str, *texts: str) -> bool:
        if self.sees(kind, *texts):
            self.at += 1
            return True
        return False

    def expect(self, kind: str, *texts: str) -> Token:
        if not self.sees(kind, *texts):
            raise self.unexpected()
        return self.next()
