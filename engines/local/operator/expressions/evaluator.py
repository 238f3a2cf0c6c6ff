"""Works a checked tree out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import tree
from .builtins import FUNCTIONS, Function
from .errors import FaultError, located
from .lists import in_order, total
from .operations import BINARY, MOST_MEMORY, UNARY, cut, fetch, to_bool, to_text
from .tree import Node
from .values import AnyMap, type_name


def run(node: Node, source: str, scope: Mapping[str, Any]) -> Any:
    """The value of a checked tree. Raises ExpressionError."""
    return _Evaluator(source, scope).value(node)


class _NothingError(Exception):
    """An optional member of nil: the whole chain is nil."""


class _Loop:
    """What a predicate is about."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self.index = items, 0
        self.acc: Any = None


class _Evaluator:
    def __init__(self, source: str, scope: Mapping[str, Any]) -> None:
        self.source, self.scope = source, scope
        self.variables: dict[str, Any] = {}
        self.loops: list[_Loop] = []
        self.memory = 0

    def value(self, node: Node) -> Any:
        try:
            return _VALUES[type(node)](self, node)
        except FaultError as fault:
            raise located(str(fault), self.source, node.at) from None

    def grow(self, items: int) -> None:
        self.memory += items
        if self.memory >= MOST_MEMORY:
            raise FaultError("memory budget exceeded")

    def literal(self, node: tree.Literal) -> Any:
        return node.value

    def name(self, node: tree.Name) -> Any:
        if node.name in self.variables:
            return self.variables[node.name]
        return self.scope if node.name == "$env" else self.scope.get(node.name)

    def pointer(self, node: tree.Pointer) -> Any:
        loop = self.loops[-1]
        if node.name == "index":
            return loop.index
        return loop.acc if node.name == "acc" else loop.items[loop.index]

    def unary(self, node: tree.Unary) -> Any:
        return UNARY[node.operator](self.value(node.operand))

    def binary(self, node: tree.Binary) -> Any:
        first, chain = tree.spine(node)
        left = self.value(first)
        for operation in chain:
            try:
                left = self.operation(operation, left)
            except FaultError as fault:
                raise located(str(fault), self.source, operation.at) from None
        return left

    def operation(self, node: tree.Binary, left: Any) -> Any:
        operator = node.operator
        if operator in ("&&", "and"):
            return self.value(node.right) if to_bool(left) else left
        if operator in ("||", "or"):
            return left if to_bool(left) else self.value(node.right)
        if operator == "??":
            return left if left is not None else self.value(node.right)
        found = BINARY[operator](left, self.value(node.right))
        if operator == "..":
            self.grow(len(found))
        return found

    def choice(self, node: tree.Choice) -> Any:
        return self.value(node.chosen if to_bool(self.value(node.condition)) else node.otherwise)

    def chain(self, node: tree.Chain) -> Any:
        try:
            return self.value(node.way)
        except _NothingError:
            return None

    def member(self, node: tree.Member) -> Any:
        holder = self.value(node.holder)
        if holder is None and node.optional:
            raise _NothingError
        return fetch(holder, self.value(node.key))

    def slice(self, node: tree.Slice) -> Any:
        holder = self.value(node.holder)
        end = self.value(node.end) if node.end is not None else None
        start = self.value(node.start) if node.start is not None else 0
        return cut(holder, start, end, whole=node.end is None)

    def array(self, node: tree.Array) -> list[Any]:
        self.grow(len(node.items))
        return [self.value(item) for item in node.items]

    def mapping(self, node: tree.Mapping) -> dict[str, Any]:
        self.grow(len(node.pairs))
        found = [(to_text(self.value(key)), self.value(value)) for key, value in node.pairs]
        return dict(reversed(found))  # of two with one key the first counts

    def let(self, node: tree.Let) -> Any:
        self.variables[node.name] = self.value(node.value)
        found = self.value(node.body)
        del self.variables[node.name]
        return found

    def sequence(self, node: tree.Sequence) -> Any:
        return [self.value(part) for part in node.parts][-1]

    def call(self, node: tree.Call) -> Any:
        arguments = [self.value(argument) for argument in node.arguments]
        callee = self.value(node.callee)
        if callee is None:
            raise FaultError("invalid operation: cannot call nil")
        if not callable(callee):
            raise FaultError(f"invalid operation: cannot call non-function of type {type_name(callee)}")
        return callee(*arguments)

    def builtin(self, node: tree.Builtin) -> Any:
        looped = _LOOPED.get(node.name)
        if looped is not None:
            return self.looped(node, looped)
        function = FUNCTIONS.get(node.name)
        if function is None:
            raise FaultError(f"{node.name} is not executed by the embedded engine")
        found = function.call(*_converted(function, [self.value(argument) for argument in node.arguments]))
        if isinstance(found, list):
            self.grow(len(found))
        return found

    def looped(self, node: tree.Builtin, run_: Callable[..., Any]) -> Any:
        items = self.value(node.arguments[0])
        if isinstance(items, str):
            items = list(items.encode())
        if not isinstance(items, list):
            raise FaultError(f"reflect: call of reflect.Value.{_on(items)} Value")
        predicate = node.arguments[1] if len(node.arguments) > 1 else None
        loop = _Loop(items)

        def ask(index: int) -> Any:
            loop.index = index
            self.loops.append(loop)
            try:
                return self.value(predicate) if predicate is not None else items[index]
            finally:
                self.loops.pop()

        extra = [self.value(argument) for argument in node.arguments[2:]]
        found = run_(loop, ask, *extra)
        if isinstance(found, list):
            self.grow(len(found))
        return found

    def predicate(self, node: tree.Predicate) -> Any:
        return self.value(node.body)


def _on(value: Any) -> str:
    names = {type(None): "Len on zero", bool: "Len on bool", int: "Len on int", float: "Len on float64"}
    return names.get(type(value), "Index on map")


def _converted(function: Function, arguments: list[Any]) -> list[Any]:
    """`arguments` as the function takes them: what should be text must be."""
    for wanted, _ in function.overloads:
        if len(wanted) == len(arguments):
            pairs = zip(arguments, wanted, strict=True)
            return [to_text(value) if type_ == "string" else value for value, type_ in pairs]
    return arguments


Ask = Callable[[int], Any]


def _that_are(loop: _Loop, ask: Ask, backwards: bool = False) -> Any:
    """The places of the items that the predicate is true of, as far as they are asked for."""
    places = range(len(loop.items))
    return (at for at in (reversed(places) if backwards else places) if to_bool(ask(at)))


def _found(loop: _Loop, ask: Ask, backwards: bool) -> Any:
    at = next(_that_are(loop, ask, backwards), None)
    return None if at is None else loop.items[at]


def _grouped(loop: _Loop, ask: Ask) -> AnyMap:
    groups = AnyMap()
    for at, item in enumerate(loop.items):
        key = ask(at)
        if isinstance(key, (list, dict)):
            raise FaultError(f"runtime error: hash of unhashable type {type_name(key)}")
        groups.setdefault(key, []).append(item)
    return groups


def _sorted(loop: _Loop, ask: Ask, order: Any = "asc") -> list[Any]:
    values = [ask(at) for at in range(len(loop.items))]
    return in_order(loop.items, values, to_text(order), "unknown order, use asc or desc")


def _reduced(loop: _Loop, ask: Ask, *initial: Any) -> Any:
    if not initial and not loop.items:
        raise FaultError("reflect: slice index out of range")
    loop.acc = initial[0] if initial else loop.items[0]
    for at in range(0 if initial else 1, len(loop.items)):
        loop.acc = ask(at)
    return loop.acc


_LOOPED: dict[str, Callable[..., Any]] = {
    "all": lambda loop, ask: all(to_bool(ask(at)) for at in range(len(loop.items))),
    "none": lambda loop, ask: next(_that_are(loop, ask), None) is None,
    "any": lambda loop, ask: next(_that_are(loop, ask), None) is not None,
    "one": lambda loop, ask: len(list(_that_are(loop, ask))) == 1,
    "filter": lambda loop, ask: [loop.items[at] for at in _that_are(loop, ask)],
    "map": lambda loop, ask: [ask(at) for at in range(len(loop.items))],
    "count": lambda loop, ask: len(list(_that_are(loop, ask))),
    "sum": lambda loop, ask: total([ask(at) for at in range(len(loop.items))]),
    "find": lambda loop, ask: _found(loop, ask, False),
    "findIndex": lambda loop, ask: next(_that_are(loop, ask), None),
    "findLast": lambda loop, ask: _found(loop, ask, True),
    "findLastIndex": lambda loop, ask: next(_that_are(loop, ask, True), None),
    "groupBy": _grouped,
    "sortBy": _sorted,
    "reduce": _reduced,
}
_VALUES: dict[type[Node], Callable[..., Any]] = {
    tree.Literal: _Evaluator.literal, tree.Name: _Evaluator.name, tree.Pointer: _Evaluator.pointer,
    tree.Unary: _Evaluator.unary, tree.Binary: _Evaluator.binary, tree.Choice: _Evaluator.choice,
    tree.Chain: _Evaluator.chain, tree.Member: _Evaluator.member, tree.Slice: _Evaluator.slice,
    tree.Array: _Evaluator.array, tree.Mapping: _Evaluator.mapping, tree.Let: _Evaluator.let,
    tree.Sequence: _Evaluator.sequence, tree.Call: _Evaluator.call, tree.Builtin: _Evaluator.builtin,
    tree.Predicate: _Evaluator.predicate,
}  # fmt: skip
