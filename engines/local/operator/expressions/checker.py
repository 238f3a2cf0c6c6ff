"""The checks that expr-lang makes before it runs anything: types, as far as known, and numbers of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from . import natures, tree
from .builtins import FUNCTIONS
from .errors import ExpressionError, FaultError, located
from .natures import ANY_LIST, ANY_MAP, BOOL, FLOAT, INT, TEXT, UNKNOWN, Nature, list_of, of_type
from .regex import compiled
from .signatures import NUMBERS, judged, of_predicate
from .tree import Node

_TESTS = ("all", "none", "any", "one", "filter", "find", "findIndex", "findLast", "findLastIndex", "count")


def check(node: Node, source: str, scope: Mapping[str, Any]) -> Nature:
    """The nature of an expression's value with the names of `scope`. Raises ExpressionError."""
    return _Checker(source, scope).visit(node)


class _Checker:
    def __init__(self, source: str, scope: Mapping[str, Any]) -> None:
        self.source, self.scope = source, scope
        self.variables: list[tuple[str, Nature]] = []
        self.predicates: list[tuple[Nature, dict[str, Nature]]] = []

    def error(self, node: Node, message: str) -> ExpressionError:
        return located(message, self.source, node.at)

    def visit(self, node: Node) -> Nature:
        visit: Callable[[Any], Nature] = _VISITS[type(node)].__get__(self)
        return visit(node)

    def literal(self, node: tree.Literal) -> Nature:
        return natures.of_value(node.value)

    def name(self, node: tree.Name) -> Nature:
        for name, nature in reversed(self.variables):
            if name == node.name:
                return nature
        if node.name == "$env":
            return UNKNOWN
        if node.name in self.scope:
            return natures.of_value(self.scope[node.name])
        if node.name in FUNCTIONS:
            return Nature("func")
        raise self.error(node, f"unknown name {node.name}")

    def pointer(self, node: tree.Pointer) -> Nature:
        if not self.predicates:
            raise self.error(node, "cannot use pointer accessor outside predicate")
        holder, names = self.predicates[-1]
        if not node.name:
            return holder.held
        if node.name not in names:
            raise self.error(node, f"unknown pointer #{node.name}")
        return names[node.name]

    def unary(self, node: tree.Unary) -> Nature:
        operand = self.visit(node.operand)
        if node.operator in ("!", "not"):
            if operand == BOOL or not operand.known:
                return BOOL
        elif operand.number or not operand.known:
            return operand
        raise self.error(node, f"invalid operation: {node.operator} (mismatched type {operand.says})")

    def binary(self, node: tree.Binary) -> Nature:
        first, chain = tree.spine(node)
        nature = self.visit(first)
        for operation in chain:
            nature = self.operation(operation, nature, self.visit(operation.right))
        return nature

    def operation(self, node: tree.Binary, left: Nature, right: Nature) -> Nature:
        operator = node.operator
        if operator == "??":
            return _coalesced(left, right)
        if operator == "in":
            return self.membership(node, left, right)
        if operator == "matches" and isinstance(node.right, tree.Literal) and isinstance(node.right.value, str):
            try:
                compiled(node.right.value)
            except FaultError as error:
                raise self.error(node, str(error)) from None
        fits, both, result = _RULES[operator]
        if operator in ("==", "!="):
            if natures.comparable(left, right):
                return BOOL
        elif (left.go in both and right.go in both and _alike(left, right)) or natures.maybe(left, right, *fits):
            return result(left, right)
        said = f"(mismatched types {left.says} and {right.says})"
        raise self.error(node, f"invalid operation: {operator} {said}")

    def membership(self, node: tree.Binary, left: Nature, right: Nature) -> Nature:
        if right.map or right.go == "struct":
            if left.known and left != TEXT:
                raise self.error(node, f"cannot use {left.says} as type string in map key")
        elif right.list:
            item = right.held
            if not natures.comparable(left, item):
                raise self.error(node, f"cannot use {left.says} as type {item.says} in array")
        elif right.known and (left.known or right != TEXT):
            raise self.error(node, f"invalid operation: in (mismatched types {left.says} and {right.says})")
        return BOOL

    def choice(self, node: tree.Choice) -> Nature:
        condition = self.visit(node.condition)
        if condition.known and condition != BOOL:
            raise self.error(node.condition, f"non-bool expression (type {condition.says}) used as condition")
        chosen, otherwise = self.visit(node.chosen), self.visit(node.otherwise)
        if chosen.nil or otherwise.nil:
            return otherwise if chosen.nil else chosen
        if not natures.assignable(chosen, otherwise):
            return UNKNOWN
        return chosen if chosen.item == otherwise.item else Nature(chosen.go)

    def chain(self, node: tree.Chain) -> Nature:
        return self.visit(node.way)

    def member(self, node: tree.Member) -> Nature:
        name = node.key.value if isinstance(node.key, tree.Literal) and isinstance(node.key.value, str) else None
        if isinstance(node.holder, tree.Name) and node.holder.name == "$env":
            if name is None:
                self.visit(node.key)
                return UNKNOWN
            if name in self.scope:
                return natures.of_value(self.scope[name])
            if node.optional:
                return UNKNOWN
            raise self.error(node, f"unknown name {name}")
        holder, key = self.visit(node.holder), self.visit(node.key)
        if not holder.known:
            return UNKNOWN
        if holder.nil and name is not None:
            raise self.error(node, f"type nil has no field {name}")
        if holder.map:
            if key.known and key != TEXT and "map[string]" in holder.go:
                raise self.error(node.key, f"cannot use {key.says} to get an element from {holder.says}")
            return holder.held
        if holder.list:
            if key.known and key != INT:
                raise self.error(node.key, f"array elements can only be selected using an integer (got {key.says})")
            return holder.held
        if name is not None and name in (holder.fields or {}):
            return (holder.fields or {})[name]
        if name is not None:
            what = "method" if node.called else "field"
            raise self.error(node, f"type {holder.says} has no {what} {name}")
        raise self.error(node, f"type {holder.says}[{key.says}] is undefined")

    def slice(self, node: tree.Slice) -> Nature:
        holder = self.visit(node.holder)
        if not holder.known:
            return UNKNOWN
        if not holder.list and holder != TEXT:
            raise self.error(node, f"cannot slice {holder.says}")
        for bound in (node.start, node.end):
            found = self.visit(bound) if bound is not None else INT
            if bound is not None and found.known and found != INT:
                raise self.error(bound, f"non-integer slice index {found.says}")
        return holder

    def array(self, node: tree.Array) -> Nature:
        items = [self.visit(item) for item in node.items]
        alike = all(_kind(a) == _kind(b) for a, b in pairwise(items))
        return list_of(items[-1] if items else UNKNOWN) if alike else ANY_LIST

    def mapping(self, node: tree.Mapping) -> Nature:
        for key, value in node.pairs:
            self.visit(key)
            self.visit(value)
        return ANY_MAP

    def let(self, node: tree.Let) -> Nature:
        known = [*self.scope, *(name for name, _ in self.variables)]
        if node.name in known:
            what = "" if node.name in self.scope else "variable "
            raise self.error(node, f"cannot redeclare {what}{node.name}")
        if node.name in FUNCTIONS:
            raise self.error(node, f"cannot redeclare builtin {node.name}")
        value = self.visit(node.value)
        self.variables.append((node.name, value))
        nature = self.visit(node.body)
        self.variables.pop()
        return nature

    def sequence(self, node: tree.Sequence) -> Nature:
        return [self.visit(part) for part in node.parts][-1]

    def call(self, node: tree.Call) -> Nature:
        callee = self.visit(node.callee)
        signature = _signature(node.callee, self.scope)
        if not callee.known:
            return UNKNOWN
        if signature is None:
            if callee.nil:
                raise self.error(node, f"{_called(node.callee)} is nil; cannot call nil as function")
            raise self.error(node, f"{callee.says} is not callable")
        wanted, result = signature
        return self.arguments(node, _called(node.callee), node.arguments, wanted, result)

    def builtin(self, node: tree.Builtin) -> Nature:
        if node.name in _PREDICATED:
            return self.predicated(node)
        function = FUNCTIONS.get(node.name)
        if function is None:
            return UNKNOWN
        if not function.overloads:
            return self.judged(node, [self.visit(argument) for argument in node.arguments])
        error: ExpressionError | None = None
        for wanted, result in function.overloads:
            try:
                return self.arguments(node, node.name, node.arguments, wanted, result)
            except ExpressionError as found:
                error = found
        assert error is not None
        raise error

    def arguments(self, node: Node, name: str, arguments: list[Node], wanted: tuple[str, ...], result: str) -> Nature:
        found = [self.visit(argument) for argument in arguments]
        if len(arguments) != len(wanted):
            few = "not enough" if len(arguments) < len(wanted) else "too many"
            raise self.error(node, f"{few} arguments to call {name}")
        for argument, nature, type_ in zip(arguments, found, wanted, strict=True):
            target = Nature(type_)
            if nature.nil and not target.known:
                continue
            if nature.nil:
                raise self.error(argument, f"cannot use nil as argument (type {type_}) to call {name}")
            if nature.known and target.known and not natures.assignable(nature, target):
                raise self.error(argument, f"cannot use {nature.says} as argument (type {type_}) to call {name} ")
        return of_type(result)

    def predicated(self, node: tree.Builtin) -> Nature:
        name, holder = node.name, self.visit(node.arguments[0])
        if holder.known and not holder.list:
            raise self.error(node.arguments[0], f"builtin {name} takes only array (got {holder.says})")
        out = UNKNOWN
        if len(node.arguments) > 1:
            names = {"map": {"index": INT}, "reduce": {"index": INT, "acc": UNKNOWN}}.get(name, {})
            self.predicates.append((holder, names))
            out = self.visit(node.arguments[1])
            self.predicates.pop()
            if out.nil:
                raise self.error(node.arguments[1], "predicate should has one input and one output param")
            if name in _TESTS and out.known and out != BOOL:
                raise self.error(node.arguments[1], f"predicate should return boolean (got {out.says})")
        for argument in node.arguments[2:]:
            self.visit(argument)
        return of_predicate(name, holder, out, len(node.arguments))

    def predicate(self, node: tree.Predicate) -> Nature:
        return self.visit(node.body)

    def judged(self, node: tree.Builtin, given: list[Nature]) -> Nature:
        """Functions that look at the types themselves."""
        message, nature = judged(node.name, given)
        if not message:
            return nature
        wrong: Node = node
        if node.name == "get" and len(given) == 2:
            wrong = node.arguments[0 if message.endswith("indexing") else 1]
        raise self.error(wrong, message)


def _signature(callee: Node, scope: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """The types of a function that stands in the scope."""
    if isinstance(callee, tree.Name):
        return getattr(scope.get(callee.name), "signature", None)
    return None


def _called(callee: Node) -> str:
    if isinstance(callee, tree.Name):
        return callee.name
    if isinstance(callee, tree.Member) and isinstance(callee.key, tree.Literal):
        return str(callee.key.value)
    return "function"


def _kind(nature: Nature) -> str:
    return "list" if nature.list else "map" if nature.map else nature.go if nature.known else ""


def _alike(left: Nature, right: Nature) -> bool:
    return left.go == right.go or (left.number and right.number)


def _coalesced(left: Nature, right: Nature) -> Nature:
    if left.nil or right.nil:
        return right if left.nil else left
    return left if natures.assignable(right, left) else UNKNOWN


def _promoted(left: Nature, right: Nature) -> Nature:
    if not left.known or not right.known:
        return UNKNOWN
    return FLOAT if FLOAT in (left, right) else INT if left.number else left


def _always(nature: Nature) -> Callable[[Nature, Nature], Nature]:
    return lambda left, right: nature


_LOGIC = (("bool",), ("bool",), _always(BOOL))
_ORDER = ((*NUMBERS, "string"), (*NUMBERS, "string"), _always(BOOL))
_TEXTUAL = (("string",), ("string",), _always(BOOL))
_RULES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[Nature, Nature], Nature]]] = {
    **dict.fromkeys(("==", "!="), ((), (), _always(BOOL))),
    **dict.fromkeys(("or", "||", "and", "&&"), _LOGIC),
    **dict.fromkeys(("<", ">", ">=", "<="), _ORDER),
    **dict.fromkeys(("matches", "contains", "startsWith", "endsWith"), _TEXTUAL),
    **dict.fromkeys(("-", "*"), (NUMBERS, NUMBERS, _promoted)),
    **dict.fromkeys(("/", "**", "^"), (NUMBERS, NUMBERS, _always(FLOAT))),
    "+": ((*NUMBERS, "string"), (*NUMBERS, "string"), _promoted),
    "%": (("int",), ("int",), _always(INT)),
    "..": (("int",), ("int",), _always(list_of(INT))),
}
_PREDICATED = frozenset((*_TESTS, "map", "sum", "groupBy", "sortBy", "reduce"))


_VISITS: dict[type[Node], Callable[..., Nature]] = {
    tree.Literal: _Checker.literal, tree.Name: _Checker.name, tree.Pointer: _Checker.pointer,
    tree.Unary: _Checker.unary, tree.Binary: _Checker.binary, tree.Choice: _Checker.choice,
    tree.Chain: _Checker.chain, tree.Member: _Checker.member, tree.Slice: _Checker.slice,
    tree.Array: _Checker.array, tree.Mapping: _Checker.mapping, tree.Let: _Checker.let,
    tree.Sequence: _Checker.sequence, tree.Call: _Checker.call, tree.Builtin: _Checker.builtin,
    tree.Predicate: _Checker.predicate,
}  # fmt: skip
