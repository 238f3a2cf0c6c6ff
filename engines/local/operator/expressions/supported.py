"""What of the languages is executed, by name; all else is refused before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import builtins, parser, tree, when
from .argo import ADDED
from .tree import Node

OPERATORS = (*parser.UNARY, *parser.BINARY, "?:", "?.", "[]", "[:]", "let", "if else", ";")
BUILTINS = (*builtins.PREDICATES, *builtins.FUNCTIONS)
OF_ARGO = tuple(name for name in ADDED if name != "sprig")
WHEN_OPERATORS = when.OPERATORS


def of_sprig() -> tuple[str, ...]:
    from .sprig import FUNCTIONS

    return tuple(sorted(FUNCTIONS))


def not_executed(node: Node) -> Iterator[str]:
    """The functions that a parsed expression calls and that nobody here can run, as it names them."""
    for part in tree.walk(node):
        if isinstance(part, tree.Builtin) and part.name in builtins.NOT_EXECUTED:
            yield part.name
        elif isinstance(part, tree.Member) and isinstance(part.holder, tree.Name) and part.holder.name == "sprig":
            if not isinstance(part.key, tree.Literal):
                yield "sprig[…]"
            elif str(part.key.value) not in ADDED["sprig"]:
                yield f"sprig.{part.key.value}"
        elif isinstance(part, tree.Call) and isinstance(part.callee, tree.Name):
            if part.callee.name not in ADDED:
                yield part.callee.name
            elif part.callee.name == "jsonpath" and len(part.arguments) == 2 and _filters(part.arguments[1]):
                yield "jsonpath with a filter"


def _filters(path: Node) -> bool:
    return isinstance(path, tree.Literal) and re.search(r"\[\??\(", str(path.value)) is not None


def identifiers(node: Node) -> list[str]:
    """The names that an expression looks up and the members that it looks up by name, holders first: `a`, `a.b`."""
    found: dict[str, None] = {}
    for part in tree.walk(node):
        if isinstance(part, tree.Name) and part.name != "$env":
            found.setdefault(part.name)
        elif isinstance(part, tree.Member) and (path := _path(part)):
            for end in range(1, len(path) + 1):
                found.setdefault(".".join(path[:end]))
    return list(found)


def _path(node: Node) -> list[str]:
    """`a.b.c` as ["a", "b", "c"]; [] for any other way of members."""
    path: list[str] = []
    while isinstance(node, tree.Member):
        if not isinstance(node.key, tree.Literal) or not isinstance(node.key.value, str):
            return []
        path.append(node.key.value)
        node = node.holder
    return [node.name, *reversed(path)] if isinstance(node, tree.Name) else []
