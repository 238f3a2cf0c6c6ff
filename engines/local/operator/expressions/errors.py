"""What can be wrong with an expression."""

from __future__ import annotations


class ExpressionError(ValueError):
    """An expression that can't be read or evaluated, in the words of the languages that Argo uses."""


class FaultError(Exception):
    """Something wrong in a value or an operation, before it is known where in the expression."""


def located(message: str, source: str, at: int) -> ExpressionError:
    """The error with its place, `(line:column)`, and the line with a mark under it."""
    before = source[:at]
    line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1)
    text = source[at - column :].partition("\n")[0]
    if not text:
        return ExpressionError(message)
    shown = text.replace("\t", " ")
    return ExpressionError(f"{message} ({line}:{column + 1})\n | {shown}\n | {'.' * column}^")
