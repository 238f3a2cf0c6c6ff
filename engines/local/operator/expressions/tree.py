"""What the parser makes of an expression. `at` is the place in the source that an error about the node points to."""

from __future__ import annotations

from collections.abc import Iterator


class Node:
    __slots__ = ("at",)

    at: int

    def fields(self) -> tuple[str, ...]:
        """The names of what is in a node."""
        return self.__slots__


class Literal(Node):
    """A number, a text, true, false or nil."""

    __slots__ = ("value",)

    def __init__(self, at: int, value: object) -> None:
        self.at, self.value = at, value


class Name(Node):
    __slots__ = ("name",)

    def __init__(self, at: int, name: str) -> None:
        self.at, self.name = at, name


class Pointer(Node):
    """`#`, or `#index` and `#acc`: what a predicate is about."""

    __slots__ = ("name",)

    def __init__(self, at: int, name: str) -> None:
        self.at, self.name = at, name


class Unary(Node):
    __slots__ = ("operand", "operator")

    def __init__(self, at: int, operator: str, operand: Node) -> None:
        self.at, self.operator, self.operand = at, operator, operand


class Binary(Node):
    __slots__ = ("left", "operator", "right")

    def __init__(self, at: int, operator: str, left: Node, right: Node) -> None:
        self.at, self.operator, self.left, self.right = at, operator, left, right


class Choice(Node):
    """`condition ? chosen : otherwise`, also as if and else."""

    __slots__ = ("chosen", "condition", "otherwise")

    def __init__(self, at: int, condition: Node, chosen: Node, otherwise: Node) -> None:
        self.at, self.condition, self.chosen, self.otherwise = at, condition, chosen, otherwise


class Member(Node):
    """`holder.key` and `holder[key]`; `optional`: `holder?.key`; `called`: `holder.key()`."""

    __slots__ = ("called", "holder", "key", "optional")

    def __init__(self, at: int, holder: Node, key: Node, optional: bool, called: bool = False) -> None:
        self.at, self.holder, self.key, self.optional, self.called = at, holder, key, optional, called


class Chain(Node):
    """A way of members of which at least one is optional: nil as soon as one of those has nothing to look into."""

    __slots__ = ("way",)

    def __init__(self, at: int, way: Node) -> None:
        self.at, self.way = at, way


class Slice(Node):
    __slots__ = ("end", "holder", "start")

    def __init__(self, at: int, holder: Node, start: Node | None, end: Node | None) -> None:
        self.at, self.holder, self.start, self.end = at, holder, start, end


class Call(Node):
    """A call of what `callee` evaluates to."""

    __slots__ = ("arguments", "callee")

    def __init__(self, at: int, callee: Node, arguments: list[Node]) -> None:
        self.at, self.callee, self.arguments = at, callee, arguments


class Builtin(Node):
    """A call of one of the language's own functions."""

    __slots__ = ("arguments", "name")

    def __init__(self, at: int, name: str, arguments: list[Node]) -> None:
        self.at, self.name, self.arguments = at, name, arguments


class Predicate(Node):
    """What a function like `filter` does with each item."""

    __slots__ = ("body",)

    def __init__(self, at: int, body: Node) -> None:
        self.at, self.body = at, body


class Array(Node):
    __slots__ = ("items",)

    def __init__(self, at: int, items: list[Node]) -> None:
        self.at, self.items = at, items


class Mapping(Node):
    __slots__ = ("pairs",)

    def __init__(self, at: int, pairs: list[tuple[Node, Node]]) -> None:
        self.at, self.pairs = at, pairs


class Let(Node):
    __slots__ = ("body", "name", "value")

    def __init__(self, at: int, name: str, value: Node, body: Node) -> None:
        self.at, self.name, self.value, self.body = at, name, value, body


class Sequence(Node):
    __slots__ = ("parts",)

    def __init__(self, at: int, parts: list[Node]) -> None:
        self.at, self.parts = at, parts


def walk(tree: Node) -> Iterator[Node]:
    """The node and all beneath it."""
    open_ = [tree]
    while open_:
        node = open_.pop()
        yield node
        below: list[Node] = []
        for name in node.fields():
            value = getattr(node, name)
            for part in value if isinstance(value, list) else (value,):
                below += [p for p in (part if isinstance(part, tuple) else (part,)) if isinstance(p, Node)]
        open_ += reversed(below)


def spine(node: Binary) -> tuple[Node, list[Binary]]:
    """The first operand of a chain like `a + b + c`, and its operations in order: chains may be long."""
    chain = []
    first: Node = node
    while isinstance(first, Binary):
        chain.append(first)
        first = first.left
    return first, chain[::-1]
