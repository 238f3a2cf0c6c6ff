"""What expr-lang works out of a checked tree before it runs it. It shows: `true && x` is x, whatever x is."""

from __future__ import annotations

from . import tree
from .errors import located
from .tree import Literal, Node


def fold(node: Node, source: str) -> Node:
    """The tree with what is constant in it worked out, as far as a result could differ. Raises ExpressionError."""
    for part in reversed(list(tree.walk(node))):  # those within a node before the node
        _fold_within(part, source)
    return _folded(node, source)


def _fold_within(node: Node, source: str) -> None:
    for name in node.fields():
        value = getattr(node, name)
        if isinstance(value, Node):
            setattr(node, name, _folded(value, source))
        elif isinstance(value, list):
            setattr(node, name, [_folded_item(item, source) for item in value])


def _folded_item(item: Node | tuple[Node, Node], source: str) -> Node | tuple[Node, Node]:
    if isinstance(item, tuple):
        return _folded(item[0], source), _folded(item[1], source)
    return _folded(item, source)


def _folded(node: Node, source: str) -> Node:
    if isinstance(node, tree.Unary) and node.operator in ("!", "not") and _truth(node.operand) is not None:
        return Literal(node.at, not _truth(node.operand))
    if not isinstance(node, tree.Binary):
        return node
    if node.operator in ("and", "&&", "or", "||"):
        return _logic(node)
    left, right = node.left, node.right
    if node.operator == "in" and isinstance(right, tree.Array) and right.items:
        texts = [item.value for item in right.items if isinstance(item, Literal) and isinstance(item.value, str)]
        if len(texts) == len(right.items):  # looked up, not compared
            return tree.Binary(node.at, "in", left, Literal(right.at, dict.fromkeys(texts)))
    if isinstance(left, Literal) and isinstance(right, Literal) and type(left.value) is type(right.value):
        if node.operator == "==" and isinstance(left.value, (bool, int, str)):
            return Literal(node.at, left.value == right.value)
        if node.operator == "%" and type(right.value) is int and right.value == 0:
            raise located("integer divide by zero", source, node.at)
    return node


def _logic(node: tree.Binary) -> Node:
    neutral = node.operator in ("and", "&&")
    left, right = _truth(node.left), _truth(node.right)
    if left is neutral:
        return node.right
    if right is neutral:
        return node.left
    return node if left is None and right is None else Literal(node.at, not neutral)


def _truth(node: Node) -> bool | None:
    return node.value if isinstance(node, Literal) and isinstance(node.value, bool) else None
