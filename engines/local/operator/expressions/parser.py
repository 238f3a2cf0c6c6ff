"""From tokens to a tree, by the grammar of expr-lang 1.17."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from . import tree
from .builtins import NAMES, PREDICATES
from .lexer import BRACKET, END, NAME, NUMBER, OPERATOR, STRING, Token
from .reader import Reader
from .tree import Node

T = TypeVar("T")

BINARY = {
    "|": 0, "or": 10, "||": 10, "and": 15, "&&": 15, "==": 20, "!=": 20, "<": 20, ">": 20, ">=": 20, "<=": 20,
    "in": 20, "matches": 20, "contains": 20, "startsWith": 20, "endsWith": 20, "..": 25, "+": 30, "-": 30,
    "*": 60, "/": 60, "%": 60, "**": 100, "^": 100, "??": 500,
}  # fmt: skip
UNARY = {"not": 50, "!": 50, "-": 90, "+": 90}
NEGATED = ("contains", "matches", "startsWith", "endsWith", "in")  # these may follow `not`
COMPARISONS = ("<", ">", ">=", "<=")

_RIGHT = ("**", "^")
_CONSTANTS = {"true": True, "false": False, "nil": None}
_BASES = {"0x": 16, "0b": 2, "0o": 8}
_MOST = 2**63 - 1
_MOST_NODES = 100_000  # ten times what expr-lang allows, so that a task may wait for thousands
_DEEPEST = 64  # Argo has no such limit, but a stack that grows


def parse(source: str) -> Node:
    """The tree of an expression. Raises ExpressionError."""
    return _Parser(source).parse()


class _Parser(Reader):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.depth = 0
        self.predicates = 0  # that we are within
        self.nodes = 0

    def parse(self) -> Node:
        node = self.sequence()
        if self.token.kind != END:
            raise self.unexpected()
        return node

    def made(self, node: Node) -> Node:
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise self.error("compilation failed: expression exceeds maximum allowed nodes")
        return node

    def sequence(self) -> Node:
        parts = [self.expression(0)]
        while self.takes(OPERATOR, ";") and self.token.kind != END:
            parts.append(self.expression(0))
        return parts[0] if len(parts) == 1 else self.made(tree.Sequence(parts[0].at, parts))

    def expression(self, binding: int) -> Node:
        self.depth += 1
        self.check_depth(self.depth)
        node = self._expression(binding)
        self.depth -= 1
        return node

    def check_depth(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise self.error("too deeply nested")

    def _expression(self, binding: int) -> Node:
        if binding == 0 and self.sees(OPERATOR, "let"):
            return self.let()
        if binding == 0 and self.sees(OPERATOR, "if"):
            return self.conditional()
        left = self.operand()
        before, pipes = "", 0
        while self.token.kind == OPERATOR:
            negation = self.token if self.sees(OPERATOR, "not") else None
            operator = self.tokens[self.at + 1] if negation else self.token
            if negation and operator.text not in NEGATED:
                self.at += 1
                raise self.unexpected()
            if BINARY.get(operator.text, -1) < binding:
                break
            self.at += 2 if negation else 1
            pipes += operator.text == "|"
            self.check_depth(self.depth + pipes)
            left = self.operation(left, operator, negation, before)
            before = operator.text
        return self.choice(left) if binding == 0 else left

    def operation(self, left: Node, operator: Token, negation: Token | None, before: str) -> Node:
        text = operator.text
        if text == "|":
            return self.call(self.expect(NAME), [left])
        if before == "??" and text != "??":
            said = f"Operator ({text}) and coalesce expressions (??) cannot be mixed. Wrap either by parentheses."
            raise self.error(said, operator)
        if text in COMPARISONS:
            return self.comparison(left, operator)
        right = self.expression(BINARY[text] + (text not in _RIGHT))
        node = self.made(tree.Binary(operator.at, text, left, right))
        return self.made(tree.Unary(negation.at, "not", node)) if negation else node

    def comparison(self, left: Node, operator: Token) -> Node:
        """`a < b < c` is `a < b && b < c`."""
        whole: Node | None = None
        while True:
            right = self.expression(BINARY[operator.text] + 1)
            pair = self.made(tree.Binary(operator.at, operator.text, left, right))
            whole = pair if whole is None else self.made(tree.Binary(operator.at, "&&", whole, pair))
            left = right
            if not self.sees(OPERATOR, *COMPARISONS):
                return whole
            operator = self.next()

    def let(self) -> Node:
        self.next()
        name = self.expect(NAME)
        self.expect(OPERATOR, "=")
        value = self.expression(0)
        self.expect(OPERATOR, ";")
        return self.made(tree.Let(name.at, name.text, value, self.sequence()))

    def conditional(self) -> Node:
        self.next()
        condition = self.expression(0)
        chosen = self.block()
        self.expect(OPERATOR, "else")
        otherwise = self.expression(0) if self.sees(OPERATOR, "if") else self.block()
        return tree.Choice(0, condition, chosen, otherwise)

    def block(self) -> Node:
        self.expect(BRACKET, "{")
        body = self.sequence()
        self.expect(BRACKET, "}")
        return body

    def choice(self, node: Node) -> Node:
        while self.takes(OPERATOR, "?"):
            if self.takes(OPERATOR, ":"):
                chosen, otherwise = node, self.expression(0)
            else:
                chosen = self.expression(0)
                self.expect(OPERATOR, ":")
                otherwise = self.expression(0)
            node = self.made(tree.Choice(self.token.at, node, chosen, otherwise))
        return node

    def operand(self) -> Node:
        token = self.token
        if token.kind == OPERATOR and token.text in UNARY:
            self.next()
            operand = self.expression(UNARY[token.text])
            return self.postfix(self.made(tree.Unary(token.at, token.text, operand)))
        if self.takes(BRACKET, "("):
            inner = self.sequence()
            self.expect(BRACKET, ")")
            return self.postfix(inner)
        if self.predicates and self.sees(OPERATOR, "#", "."):
            name = ""
            if self.takes(OPERATOR, "#") and self.sees(NAME):
                name = self.next().text
            return self.postfix(self.made(tree.Pointer(token.at, name)))
        if self.takes(OPERATOR, "::"):
            return self.postfix(self.call(self.expect(NAME), []))
        return self.value()

    def value(self) -> Node:
        token = self.token
        if token.kind == NAME:
            self.next()
            if token.text in _CONSTANTS:
                return self.made(tree.Literal(token.at, _CONSTANTS[token.text]))
            if self.sees(BRACKET, "("):
                return self.postfix(self.call(token, []))
            return self.postfix(self.made(tree.Name(token.at, token.text)))
        if token.kind == NUMBER:
            self.next()
            return self.made(tree.Literal(token.at, self.number(token)))
        if token.kind == STRING:
            self.next()
            return self.postfix(self.made(tree.Literal(token.at, token.text)))
        if self.takes(BRACKET, "["):
            return self.postfix(self.made(tree.Array(token.at, self.items("]", lambda: self.expression(0)))))
        if self.takes(BRACKET, "{"):
            return self.postfix(self.made(tree.Mapping(token.at, self.items("}", self.pair))))
        raise self.unexpected()

    def number(self, token: Token) -> int | float:
        text = token.text.replace("_", "").lower()
        base = _BASES.get(text[:2])
        try:
            if base is None and ("." in text or "e" in text):
                return float(text)
            value = int(text[2:], base) if base else int(text)
        except ValueError:
            raise self.error(f'invalid float literal: strconv.ParseFloat: parsing "{text}": invalid syntax') from None
        if value > _MOST:
            kind = {16: "hex", 2: "binary", 8: "octal"}.get(base or 10, "integer")
            said = f'invalid {kind} literal: strconv.ParseInt: parsing "{text}": value out of range'
            raise self.error(said)
        return value

    def items(self, closing: str, item: Callable[[], T]) -> list[T]:
        """Items between commas; one may stand behind the last."""
        found: list[T] = []
        while not self.sees(BRACKET, closing):
            if found:
                self.expect(OPERATOR, ",")
                if self.sees(BRACKET, closing):
                    break
            found.append(item())
        self.expect(BRACKET, closing)
        return found

    def pair(self) -> tuple[Node, Node]:
        token = self.token
        if token.kind in (NUMBER, STRING, NAME):
            self.next()
            key = self.made(tree.Literal(token.at, token.text))
        elif self.sees(BRACKET, "("):
            key = self.expression(0)
        else:
            said = "a map key must be a quoted string, a number, a identifier, or an expression enclosed in parentheses"
            raise self.error(f"{said} (unexpected token {token})")
        self.expect(OPERATOR, ":")
        return key, self.expression(0)

    def call(self, name: Token, given: list[Node]) -> Node:
        """A call by name; `given` came through a pipe."""
        if name.text in PREDICATES:
            return self.predicate_call(name, given)
        self.expect(BRACKET, "(")
        arguments = [*given, *self.items(")", lambda: self.expression(0))]
        if name.text in NAMES:
            return self.made(tree.Builtin(name.at, name.text, arguments))
        return self.made(tree.Call(name.at, self.made(tree.Name(name.at, name.text)), arguments))

    def predicate_call(self, name: Token, given: list[Node]) -> Node:
        """`filter(list, predicate)` and the like; a `?` marks what may be left out."""
        self.expect(BRACKET, "(")
        wanted = PREDICATES[name.text][len(given) :]
        arguments = list(given)
        for index, kind in enumerate(wanted):
            if self.sees(BRACKET, ")"):
                if kind.endswith("?"):
                    break
                raise self.error(f"expected at least {len(wanted)} arguments")
            if index > 0:
                self.expect(OPERATOR, ",")
            arguments.append(self.predicate() if kind.startswith("predicate") else self.expression(0))
        self.takes(OPERATOR, ",")
        self.expect(BRACKET, ")")
        return self.made(tree.Builtin(name.at, name.text, arguments))

    def predicate(self) -> Node:
        start = self.token
        self.predicates += 1
        if self.takes(BRACKET, "{"):
            body = self.sequence()
            self.predicates -= 1
            self.expect(BRACKET, "}")
        else:
            body = self.expression(0)
            if self.sees(OPERATOR, ";"):
                raise self.error("wrap predicate with brackets { and }")
            self.predicates -= 1
        return self.made(tree.Predicate(start.at, body))

    def postfix(self, node: Node) -> Node:
        depth = self.depth
        while True:
            token = self.token
            depth += 1
            self.check_depth(depth)
            if self.takes(OPERATOR, ".", "?."):
                optional = token.text == "?."
                if optional and self.sees(BRACKET, "["):
                    node = self.index(node, self.next(), optional=True)
                else:
                    node = self.member(node, optional)
            elif self.takes(BRACKET, "["):
                node = self.index(node, token, optional=False)
            else:
                return node

    def member(self, node: Node, optional: bool) -> Node:
        name = self.next()
        if name.kind != NAME and not (name.kind == OPERATOR and name.text.isidentifier()):
            raise self.error("expected name")
        key = self.made(tree.Literal(name.at, name.text))
        chained = isinstance(node, tree.Chain)
        holder = node.way if isinstance(node, tree.Chain) else node
        found: Node = self.made(tree.Member(name.at, holder, key, optional, self.sees(BRACKET, "(")))
        if self.takes(BRACKET, "("):
            arguments = self.items(")", lambda: self.expression(0))
            found = self.made(tree.Call(name.at, found, arguments))
        return self.made(tree.Chain(name.at, found)) if chained or optional else found

    def index(self, node: Node, bracket: Token, *, optional: bool) -> Node:
        start: Node | None = None
        if not self.sees(OPERATOR, ":"):
            start = self.expression(0)
        if self.takes(OPERATOR, ":"):
            end = None if self.sees(BRACKET, "]") else self.expression(0)
            self.expect(BRACKET, "]")
            return self.made(tree.Slice(bracket.at, node, start, end))
        self.expect(BRACKET, "]")
        assert start is not None
        found = self.made(tree.Member(bracket.at, node, start, optional))
        return self.made(tree.Chain(bracket.at, found)) if optional else found
