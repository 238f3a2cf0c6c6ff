"""The expressions of a Workflow, evaluated without eval(): retry and depends conditions, `{{=…}}` and `when`.

Two dialects share one grammar: `evaluate` is a strict subset of expr-lang, in which bare words are names looked up in a
scope; `evaluate_when` is the language of `when`, in which bare words are strings.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Node = tuple[Any, ...]  # (kind, operands...): what the parser makes and the evaluator walks

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<op>\*\*|&&|\|\||==|!=|<=|>=|=~|!~|\?\?|[-+*/%^!<>?:.,()\[\]{}])
    )""",
    re.VERBOSE,
)
_WHEN_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_ALIASES = {"or": "||", "and": "&&", "not": "!"}
_BINARY = {
    "?": 5, "??": 15, "||": 10, "&&": 15, "==": 20, "!=": 20, "<": 20, ">": 20, "<=": 20, ">=": 20, "=~": 20, "!~": 20,
    "in": 20, "not in": 20, "contains": 20, "matches": 20, "startsWith": 20, "endsWith": 20,
    "+": 30, "-": 30, "*": 60, "/": 60, "%": 60, "**": 100, "^": 100,
}  # fmt: skip
_WORD_OPERATORS = ("in", "contains", "matches", "startsWith", "endsWith")
_UNARY_BINDING = {"!": 50, "-": 90, "+": 90}
_MAX_DEPTH = 100


class ExpressionError(ValueError):
    """An expression that can't be read or evaluated; the text says which part."""


class UnknownNameError(ExpressionError):
    """A name that the scope doesn't hold."""


def evaluate(source: str, scope: Mapping[str, Any]) -> Any:
    """The value of `source`; names and their members come from nested `scope`. Raises ExpressionError."""
    return _evaluate(parse(source), scope)


def evaluate_condition(source: str, scope: Mapping[str, Any]) -> bool:
    """As `evaluate`, for a condition: any value but a boolean is an ExpressionError."""
    value = evaluate(source, scope)
    if not isinstance(value, bool):
        raise ExpressionError(f"unable to cast expression result '{show(value)}' to bool")
    return value


def evaluate_when(source: str) -> bool:
    """Whether a `when` (already substituted) lets its task run. An empty one does. Raises ExpressionError."""
    if not source:
        return True
    try:
        value = _evaluate(parse(source, when=True), {}, when=True)
    except ExpressionError as error:
        raise ExpressionError(
            f"Invalid 'when' expression '{source}': {error} (hint: try wrapping the affected expression in quotes (\"))"
        ) from None
    if not isinstance(value, bool):
        raise ExpressionError(f"Expected boolean evaluation for '{source}'. Got {show(value)}")
    return value


def show(value: Any) -> str:
    """A value as text, the way templates print it."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=1024)
def parse(source: str, when: bool = False) -> Node:
    """Parses without evaluating, for checks ahead of time. Raises ExpressionError."""
    parser = _Parser(_tokens(source, when), when)
    tree = parser.expression(0)
    if parser.peek() is not None:
        raise ExpressionError(f"unexpected '{parser.peek_text()}'")
    return tree


def names(tree: Node) -> set[str]:
    """The dotted names that a parsed expression looks up."""
    if tree[0] in ("name", "member", "index") and (path := _path(tree)):
        return {path}
    found: set[str] = set()
    operands = tree[2:] if tree[0] == "call" else tree[1:]
    for operand in operands:
        for part in operand if isinstance(operand, list) else [operand]:
            if isinstance(part, tuple) and part and isinstance(part[0], str):
                found |= names(part)
    return found


def _path(tree: Node) -> str:
    if tree[0] == "name":
        return str(tree[1])
    key = tree[2] if tree[0] == "member" else tree[2][1] if tree[2][0] == "value" else None
    base = _path(tree[1]) if tree[1][0] in ("name", "member", "index") else ""
    return f"{base}.{key}" if base and isinstance(key, str) else ""


def _tokens(source: str, when: bool) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    at, end = 0, len(source.rstrip())
    while at < end:
        word = _WHEN_NAME.match(source, at) if when else None
        match = word or _TOKEN.match(source, at)
        if match is None:
            raise ExpressionError(f"Invalid token '{source[at:].strip()[:20]}'")
        at = match.end()
        if word is not None:
            name = word.group(1)
            found.append(("value", name == "true") if name in ("true", "false") else _when_word(name))
        elif match["number"] is not None:
            found.append(("value", float(match["number"]) if not match["number"].isdigit() else int(match["number"])))
        elif match["string"] is not None:
            found.append(("value", _unquote(match["string"])))
        elif match["name"] is not None:
            name = match["name"]
            found.append(("op", _ALIASES[name]) if name in _ALIASES else ("name", name))
        else:
            found.append(("op", match["op"]))
    return found


def _when_word(name: str) -> tuple[str, Any]:
    return ("name", "in") if name in ("in", "IN") else ("value", name)


def _unquote(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        if match[1][0] == "u":
            return chr(int(match[1][1:], 16))
        if match[1] not in _ESCAPES:
            raise ExpressionError(f"unknown escape '\\{match[1]}'")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", escape, text[1:-1], flags=re.DOTALL)


class _Parser:
    """Precedence climbing over a list of tokens."""

    def __init__(self, tokens: list[tuple[str, Any]], when: bool) -> None:
        self.tokens, self.when, self.at, self.depth = tokens, when, 0, 0

    def peek(self) -> tuple[str, Any] | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def peek_text(self) -> str:
        token = self.peek()
        return "end of expression" if token is None else show(token[1])

    def take(self, text: str) -> bool:
        token = self.peek()
        if token is not None and token[0] == "op" and token[1] == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise ExpressionError(f"expected '{text}', found '{self.peek_text()}'")

    def expression(self, binding: int) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ExpressionError("too deeply nested")
        left, chain = self.unary(), 0
        while (found := self.binary()) is not None and _BINARY[found[0]] >= binding:
            name, width = found
            self.at += width
            if name == "?":
                middle = self.expression(0)
                self.expect(":")
                left = ("choice", left, middle, self.expression(_BINARY["?"]))
                continue
            # ** binds to the right, everything else to the left
            right = self.expression(_BINARY[name] + (name not in ("**", "^")))
            if name in ("&&", "||") and left[:2] == ("logic", name):  # flat, so that a long chain is no deep tree
                left[2].append(right)
                continue
            chain += 1
            if chain > _MAX_DEPTH:
                raise ExpressionError("too long")
            left = ("logic", name, [left, right]) if name in ("&&", "||") else ("binary", name, left, right)
        self.depth -= 1
        return left

    def binary(self) -> tuple[str, int] | None:
        token = self.peek()
        if token is None:
            return None
        if token == ("op", "!") and self.tokens[self.at + 1 : self.at + 2] == [("name", "in")]:
            return "not in", 2
        if (token[0] == "op" and token[1] in _BINARY) or (token[0] == "name" and token[1] in _WORD_OPERATORS):
            return str(token[1]), 1
        return None

    def unary(self) -> Node:
        for text, binding in _UNARY_BINDING.items():
            if self.take(text):
                return ("unary", text, self.expression(binding))
        return self.postfix(self.primary())

    def primary(self) -> Node:
        token = self.peek()
        if token is None:
            raise ExpressionError("unexpected end of expression")
        self.at += 1
        kind, value = token
        if kind == "value":
            return ("value", value)
        if kind == "name":
            if value in ("true", "false", "nil"):
                return ("value", {"true": True, "false": False, "nil": None}[value])
            return ("call", value, self.items(")")) if self.take("(") else ("name", value)
        if value == "(":
            inner = self.expression(0)
            if self.when and self.take(","):  # the list after `in`
                return ("list", [inner, *self.items(")")])
            self.expect(")")
            return inner
        if value == "[" and not self.when:
            return ("list", self.items("]"))
        raise ExpressionError(f"unexpected '{value}'")

    def items(self, closing: str) -> list[Node]:
        found: list[Node] = []
        while not self.take(closing):
            if found:
                self.expect(",")
            found.append(self.expression(0))
        return found

    def postfix(self, node: Node) -> Node:
        while not self.when:
            if self.take("."):
                token = self.peek()
                if token is None or token[0] != "name":
                    raise ExpressionError(f"expected a name after '.', found '{self.peek_text()}'")
                self.at += 1
                if self.take("("):
                    raise ExpressionError(f"unknown function '{token[1]}'")
                node = ("member", node, token[1])
            elif self.take("["):
                index = self.expression(0)
                self.expect("]")
                node = ("index", node, index)
            else:
                break
        return node


def _integer(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise ExpressionError(f"invalid operation: int({show(value)})") from None


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ExpressionError(f"invalid operation: float({show(value)})") from None


def _on_text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(_text(value, "a text function"))


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "asInt": _integer, "int": _integer, "asFloat": _float, "float": _float, "string": show, "toJson": json.dumps,
    "len": lambda v: len(v) if isinstance(v, (str, list, Mapping)) else _mismatch("len", v),
    "lower": _on_text(str.lower), "upper": _on_text(str.upper), "trim": _on_text(str.strip),
}  # fmt: skip
_TEXT: dict[str, Callable[[str, str], bool]] = {
    "contains": operator.contains, "startsWith": str.startswith, "endsWith": str.endswith,
}  # fmt: skip
_ORDER = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
    "**": operator.pow, "^": operator.pow,
}  # fmt: skip


def _kind(value: Any) -> str:
    kinds = {bool: "bool", int: "number", float: "number", str: "string", list: "list", type(None): "nil"}
    return kinds.get(type(value), "map")


def _mismatch(what: str, *values: Any) -> Any:
    shown = " and ".join(_kind(value) for value in values)
    raise ExpressionError(f"invalid operation: {what} ({'mismatched types ' if len(values) > 1 else ''}{shown})")


def _text(value: Any, what: str) -> str:
    return value if isinstance(value, str) else str(_mismatch(what, value))


def _truth(value: Any, what: str) -> bool:
    return value if isinstance(value, bool) else bool(_mismatch(what, value))


def _evaluate(tree: Node, scope: Mapping[str, Any], when: bool = False) -> Any:
    kind = tree[0]
    if kind == "value":
        return tree[1]
    if kind == "name":
        if tree[1] not in scope:
            raise UnknownNameError(f"unknown name {tree[1]}")
        return scope[tree[1]]
    if kind in ("member", "index"):
        return _member(tree, scope)
    if kind == "list":
        return [_evaluate(item, scope, when) for item in tree[1]]
    if kind == "choice":
        chosen = 2 if _truth(_evaluate(tree[1], scope, when), "?:") else 3
        return _evaluate(tree[chosen], scope, when)
    if kind == "unary":
        return _unary(tree[1], _evaluate(tree[2], scope, when))
    if kind == "call":
        if tree[1] not in _FUNCTIONS:
            raise ExpressionError(f"unknown function '{tree[1]}'")
        if len(tree[2]) != 1:
            raise ExpressionError(f"{tree[1]} takes 1 argument, not {len(tree[2])}")
        return _FUNCTIONS[tree[1]](_evaluate(tree[2][0], scope))
    name = tree[1]
    if kind == "logic":
        values = (_truth(_evaluate(operand, scope, when), name) for operand in tree[2])
        return all(values) if name == "&&" else any(values)
    left = _evaluate(tree[2], scope, when)
    if name == "??":
        return left if left is not None else _evaluate(tree[3], scope, when)
    return _binary(name, left, _evaluate(tree[3], scope, when), when)


def _member(tree: Node, scope: Mapping[str, Any]) -> Any:
    holder = _evaluate(tree[1], scope)
    key = tree[2] if tree[0] == "member" else _evaluate(tree[2], scope)
    if isinstance(holder, Mapping):
        if key not in holder:
            raise UnknownNameError(f"unknown name {_path(tree) or show(key)}")
        return holder[key]
    if isinstance(holder, list) and isinstance(key, int) and -len(holder) <= key < len(holder):
        return holder[key]
    raise ExpressionError(f"cannot get '{show(key)}' of a {_kind(holder)}")


def _unary(name: str, value: Any) -> Any:
    if name == "!":
        return not _truth(value, "!")
    if _kind(value) != "number":
        _mismatch(name, value)
    return -value if name == "-" else value


def _binary(name: str, left: Any, right: Any, when: bool) -> Any:
    kinds = (_kind(left), _kind(right))
    if name in ("==", "!="):
        if kinds[0] != kinds[1] and "nil" not in kinds and not when:
            _mismatch(name, left, right)
        return (kinds[0] == kinds[1] and left == right) == (name == "==")
    if name in ("in", "not in"):
        if when and not isinstance(right, list):
            right = [right]
        if not isinstance(right, (list, Mapping)):
            _mismatch(name, left, right)
        inside = any(_kind(item) == kinds[0] and item == left for item in right)
        return inside == (name == "in")
    if name in _TEXT:
        return _TEXT[name](_text(left, name), _text(right, name))
    if name in ("matches", "=~", "!~"):
        try:
            return (re.search(_text(right, name), _text(left, name)) is not None) != (name == "!~")
        except re.error as error:
            raise ExpressionError(f"invalid pattern '{right}': {error}") from None
    if kinds[0] != kinds[1] or kinds[0] not in ("number", "string"):
        _mismatch(name, left, right)
    if name in _ORDER:
        return _ORDER[name](left, right)
    if kinds[0] == "string" and name != "+":
        _mismatch(name, left, right)
    try:
        return _ARITHMETIC[name](left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise ExpressionError(f"{show(left)} {name} {show(right)}: {error}") from None
