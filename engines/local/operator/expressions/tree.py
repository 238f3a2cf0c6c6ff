"""What the parser makes of an expression. `at` is the place in the source that an error about the node points to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Node:
    at: int


@dataclass(slots=True)
class Literal(Node):
    """A number, a text, true, false or nil."""

    value: object


@dataclass(slots=True)
class Name(Node):
    name: str


@dataclass(slots=True)
class Pointer(Node):
    """`#`, or `#index` and `#acc`: what a predicate is about."""

    name: str


@dataclass(slots=True)
class Unary(Node):
    operator: str
    operand: Node


@dataclass(slots=True)
class Binary(Node):
    operator: str
    left: Node
    right: Node


@dataclass(slots=True)
class Choice(Node):
    """`condition ? chosen : otherwise`, also as if and else."""

    condition: Node
    chosen: Node
    otherwise: Node


@dataclass(slots=True)
class Member(Node):
    """`holder.key` and `holder[key]`; `optional`: `holder?.key`; `called`: `holder.key()`."""

    holder: Node
    key: Node
    optional: bool
    called: bool = False


@dataclass(slots=True)
class Chain(Node):
    """A way of members of which at least one is optional: nil as soon as one of those has nothing to look into."""

    way: Node


@dataclass(slots=True)
class Slice(Node):
    holder: Node
    start: Node | None
    end: Node | None


@dataclass(slots=True)
class Call(Node):
    """A call of what `callee` evaluates to."""

    callee: Node
    arguments: list[Node]


@dataclass(slots=True)
class Builtin(Node):
    """A call of one of the language's own functions."""

    name: str
    arguments: list[Node]


@dataclass(slots=True)
class Predicate(Node):
    """What a function like `filter` does with each item."""

    body: Node


@dataclass(slots=True)
class Array(Node):
    items: list[Node]


@dataclass(slots=True)
class Mapping(Node):
    pairs: list[tuple[Node, Node]]


@dataclass(slots=True)
class Let(Node):
    name: str
    value: Node
    body: Node


@dataclass(slots=True)
class Sequence(Node):
    parts: list[Node]


def walk(tree: Node) -> Iterator[Node]:
    """The node and all beneath it."""
    open_ = [tree]
    while open_:
        node = open_.pop()
        yield node
        below: list[Node] = []
        for field in fields(node):
            value = getattr(node, field.name)
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
