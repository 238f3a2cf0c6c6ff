"""`when`: the language of govaluate 3, in which bare words are text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from . import when_tokens as words
from .errors import ExpressionError, FaultError
from .regex import compiled
from .values import text
from .when_tokens import Token

OPERATORS = (
    "==", "!=", ">", ">=", "<", "<=", "=~", "!~", "in", "&&", "||", "+", "-", "*", "/", "%", "**", "&", "|", "^",
    ">>", "<<", "!", "~", "?:", "??",
)  # fmt: skip


def evaluate_when(source: str) -> bool:
    """Whether a `when` (already substituted) lets its task run. An empty one does. Raises ExpressionError."""
    if not source:
        return True
    try:
        found = words.checked(words.tokens(source))
        _Planner(found).plan()
    except FaultError as error:
        hint = ' (hint: try wrapping the affected expression in quotes ("))' if "Invalid token" in str(error) else ""
        raise ExpressionError(f"Invalid 'when' expression '{source}': {error}{hint}") from None
    try:
        stage = _Planner(words.checked([_as_text(token) for token in found])).plan()
    except FaultError as error:
        raise ExpressionError(f"Failed to parse 'when' expression '{source}': {error}") from None
    try:
        value = None if stage is None else stage.value()
    except FaultError as error:
        raise ExpressionError(f"Failed to evaluate 'when' expresion '{source}': {error}") from None
    if not isinstance(value, bool):
        raise ExpressionError(f"Expected boolean evaluation for '{source}'. Got {_shown(value)}")
    return value


def _as_text(token: Token) -> Token:
    return Token(words.STRING, token.value) if token.kind == words.VARIABLE else token


def _shown(value: Any) -> str:
    return value.pattern if isinstance(value, re.Pattern) else text(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, float)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


_LOGIC = "Value '%s' cannot be used with the logical operator '%s', it is not a bool"
_ARITHMETIC = "Value '%s' cannot be used with the modifier '%s', it is not a number"
_COMPARING = "Value '%s' cannot be used with the comparator '%s', it is not a number"
_CHOOSING = "Value '%s' cannot be used with the ternary operator '%s', it is not a bool"
_PREFIXING = "Value '%s' cannot be used with the prefix '%s'"

_RANKS = {
    "**": 4, "+": 5, "-": 5, "^": 6, "&": 6, "|": 6, ">>": 7, "<<": 7, "*": 8, "/": 8, "%": 8,
    "==": 9, "!=": 9, ">": 9, ">=": 9, "<": 9, "<=": 9, "=~": 9, "!~": 9, "in": 9, "?": 10, ":": 10, "??": 10,
    "&&": 11, "||": 12, ",": 13, "noop": 0, "accessor": 2,
}  # fmt: skip
# From what binds least to what binds most; each level takes one operator and gives the rest to its own right.
_LEVELS = (
    (words.SEPARATOR, (",",)), (words.TERNARY, ("?", ":", "??")), (words.LOGICAL, ("||",)), (words.LOGICAL, ("&&",)),
    (words.COMPARATOR, ("==", "!=", ">", ">=", "<", "<=", "=~", "!~", "in")), (words.MODIFIER, ("^", "&", "|")),
    (words.MODIFIER, (">>", "<<")), (words.MODIFIER, ("+", "-")), (words.MODIFIER, ("*", "/", "%")),
    (words.MODIFIER, ("**",)),
)  # fmt: skip
_MOST_TOKENS, _DEEPEST = 500, 32  # Argo has no such limits, but a stack that grows


class _Stage:
    """An operation, or a value where it has no operator."""

    def __init__(self, symbol: str, left: _Stage | None, right: _Stage | None, literal: Any = None) -> None:
        self.symbol, self.left, self.right, self.literal = symbol, left, right, literal

    @property
    def rank(self) -> int:
        return 3 if self.symbol.startswith("prefix") else _RANKS.get(self.symbol, 1)

    def value(self) -> Any:
        if self.symbol == "":
            return self.literal
        if self.symbol == "accessor":
            raise FaultError(f"No parameter '{self.literal[0]}' found.")
        left = self.left.value() if self.left is not None else None
        settled, value = _SHORT[self.symbol](left) if self.symbol in _SHORT else (False, None)
        if settled:
            return value
        right = self.right.value() if self.right is not None else None
        return _operate(self.symbol, left, right)


class _Planner:
    def __init__(self, found: list[Token]) -> None:
        if len(found) > _MOST_TOKENS:
            raise FaultError("too long")
        self.tokens, self.at, self.depth = found, 0, 0

    def plan(self) -> _Stage | None:
        if not self.tokens:
            return None
        stage = self.level(0)
        if stage is not None:
            _reorder(stage)
        return stage

    def level(self, number: int) -> _Stage | None:
        if number == len(_LEVELS):
            return self.operand()
        left = self.level(number + 1)
        if self.at < len(self.tokens):
            token, (kind, symbols) = self.tokens[self.at], _LEVELS[number]
            if token.kind == kind and token.value in symbols:
                self.at += 1
                return _Stage(str(token.value), left, self.level(number))
        return left

    def operand(self) -> _Stage | None:
        if self.at >= len(self.tokens):
            return None
        token = self.tokens[self.at]
        if token.kind == words.CLOSE:
            return None
        self.at += 1
        if token.kind == words.CLAUSE:
            self.depth += 1
            if self.depth > _DEEPEST:
                raise FaultError("too deeply nested")
            inner = self.level(0)
            self.at += 1
            self.depth -= 1
            return _Stage("noop", None, inner)
        if token.kind == words.PREFIX:
            return _Stage(f"prefix {token.value}", None, self.operand())
        if token.kind == words.ACCESSOR:
            return _Stage("accessor", None, None, token.value)
        if token.kind in (words.VARIABLE, words.NUMERIC, words.STRING, words.PATTERN, words.BOOLEAN, words.TIME):
            return _Stage("", None, None, token.value)
        raise FaultError(f"Unable to plan token kind: '{token.kind}', value: '{text(token.value)}'")


def _reorder(root: _Stage) -> None:
    """Operators of one rank were planned from right to left: turns them around, so that they go from left to right."""
    alike: list[_Stage] = []
    rank, stage = root.rank, root
    following: _Stage | None = root
    while following is not None:
        stage, following = following, following.right
        if stage.left is not None:
            _reorder(stage.left)
        if stage.rank == rank:
            alike.append(stage)
            continue
        _mirror(alike)
        alike, rank = [stage], stage.rank
    _mirror(alike)


def _mirror(stages: list[_Stage]) -> None:
    if len(stages) < 2:
        return
    operands = [*(stage.left for stage in stages), stages[-1].right]
    symbols = [(stage.symbol, stage.literal) for stage in stages]
    for stage, (symbol, literal) in zip(stages, reversed(symbols), strict=True):
        stage.symbol, stage.literal = symbol, literal
    for at, stage in enumerate(stages):
        stage.right = operands[len(stages) - at]
        stage.left = stages[at + 1] if at + 1 < len(stages) else operands[0]


Short = Callable[[Any], tuple[bool, Any]]
_SHORT: dict[str, Short] = {
    "&&": lambda left: (left is False, False),
    "||": lambda left: (left is True, True),
    "??": lambda left: (left is not None, left),
    "?": lambda left: (left is False, None),
    ":": lambda left: (left is not None, left),
}


def _operate(symbol: str, left: Any, right: Any) -> Any:
    if symbol == "noop":
        return right
    if symbol == ",":
        return [*left, right] if isinstance(left, list) else [left, right]
    if symbol.startswith("prefix"):
        return _prefixed(symbol[-1], right)
    if symbol in ("?", ":", "??"):
        return _chosen(symbol, left, right)
    if symbol in ("==", "!="):
        return (type(left) is type(right) and left == right) == (symbol == "==")
    if symbol in ("&&", "||"):
        _need(left, _is_bool, _LOGIC, symbol)
        _need(right, _is_bool, _LOGIC, symbol)
        return (left and right) if symbol == "&&" else (left or right)
    if symbol == "in":
        _need(right, lambda value: isinstance(value, list), _COMPARING, symbol)
        return any(type(item) is type(left) and item == left for item in right)
    if symbol in ("=~", "!~"):
        return _matched(symbol, left, right)
    if symbol in _ORDER:
        if not (_both(left, right, _is_number) or _both(left, right, _is_text)):
            raise FaultError(_COMPARING % (_shown(left), symbol))
        return _ORDER[symbol](left, right)
    if symbol == "+" and (_is_text(left) or _is_text(right)):
        return _shown(left) + _shown(right)
    if symbol == "+" and not _both(left, right, _is_number):
        raise FaultError(_ARITHMETIC % (_shown(left), symbol))
    _need(left, _is_number, _ARITHMETIC, symbol)
    _need(right, _is_number, _ARITHMETIC, symbol)
    return _calculated(symbol, left, right)


def _need(value: Any, fits: Callable[[Any], bool], said: str, symbol: str) -> None:
    if not fits(value):
        raise FaultError(said % (_shown(value), symbol))


def _both(left: Any, right: Any, fits: Callable[[Any], bool]) -> bool:
    return fits(left) and fits(right)


def _prefixed(symbol: str, value: Any) -> Any:
    _need(value, _is_bool if symbol == "!" else _is_number, _PREFIXING, symbol)
    if symbol == "!":
        return not value
    return -value if symbol == "-" else float(~int(value))


def _chosen(symbol: str, left: Any, right: Any) -> Any:
    if symbol == "?":
        _need(left, _is_bool, _CHOOSING, symbol)
        return right if left else None
    return left if left is not None else right


def _matched(symbol: str, left: Any, right: Any) -> bool:
    _need(left, _is_text, _COMPARING, symbol)
    _need(right, lambda value: isinstance(value, (str, re.Pattern)), _COMPARING, symbol)
    try:
        pattern = compiled(right) if isinstance(right, str) else right
    except FaultError as error:
        raise FaultError(f"Unable to compile regexp pattern '{right}': {error}") from None
    return (pattern.search(left) is not None) == (symbol == "=~")


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda a, b: bool(a > b), ">=": lambda a, b: bool(a >= b),
    "<": lambda a, b: bool(a < b), "<=": lambda a, b: bool(a <= b),
}  # fmt: skip
_BITS: dict[str, Callable[[int, int], int]] = {
    "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<<": lambda a, b: (a << min(b, 64)) % 2**64, ">>": lambda a, b: a >> b,
}  # fmt: skip


def _calculated(symbol: str, left: float, right: float) -> float:
    if symbol in _BITS:
        return float(_BITS[symbol](int(left), int(right)))
    try:
        if symbol == "**":
            return math.pow(left, right)
        if symbol == "%":
            return math.fmod(left, right)
        return {"+": left + right, "-": left - right, "*": left * right}[symbol] if symbol != "/" else left / right
    except ZeroDivisionError:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.inf if symbol == "**" and left == 0 else math.nan
