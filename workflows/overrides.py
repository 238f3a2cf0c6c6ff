"""`--set a.b=value`: one value of a manifest replaced before it is checked."""

from __future__ import annotations

from collections.abc import Sequence as Texts

from .errors import shown
from .yaml_lines import MOST_DEPTH, Mapping, Node, Place, Report, Scalar, Sequence, parse_scalar

EXAMPLE = "write --set cpus=2 or --set framework.command='python train.py'"


def apply(root: Node | None, overrides: Texts[str], report: Report) -> Node | None:
    """`root` with the overrides put into it, in their order; what can't be put is reported."""
    for order, override in enumerate(overrides, 1):
        path, equals, value = override.partition("=")
        place = Place(order, 0, f"--set {shown(path)[1:-1]}")
        parts = path.split(".")
        if not equals or not all(part.strip() == part != "" for part in parts) or len(parts) > MOST_DEPTH:
            report.say(place, f"is not KEY=VALUE; {EXAMPLE}")
            continue
        try:
            root = _put(root, parts, 0, _scalar(value, place))
        except ValueError as error:
            report.say(place, str(error))
    return root


def _scalar(value: str, place: Place) -> Scalar:
    """A value in quotes is YAML's; any other is the text itself, a script if it has several lines."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        quoted = parse_scalar(value, place)
        if quoted is not None:
            return quoted
    return Scalar(place, value, "|" if "\n" in value else "")


def _put(node: Node | None, parts: list[str], done: int, value: Scalar) -> Node:
    """`node` with `value` at `parts[done:]`, made of new nodes where it changes. Raises ValueError."""
    if done == len(parts):
        return value
    word, above = parts[done], ".".join(parts[:done])
    if node is None or (isinstance(node, Scalar) and node.null):
        node = Sequence(value.place) if word == "0" and done else Mapping(value.place)
    if isinstance(node, Scalar):
        raise ValueError(f"goes into {above}, which is one value; write --set {above}=VALUE")
    if isinstance(node, Sequence):
        if not word.isdecimal() or len(word) > 4 or int(word) > len(node.items):
            raise ValueError(
                f"has {shown(word)}, and {above or 'this'} is a list of {len(node.items)}; write a number from 0"
            )
        index = int(word)
        item = node.items[index] if index < len(node.items) else None
        items = [*node.items[:index], _put(item, parts, done + 1, value), *node.items[index + 1 :]]
        return Sequence(node.place, items)
    place, below = node.entries.get(word, (value.place, None))
    if done == len(parts) - 1:
        place = value.place
    return Mapping(node.place, {**node.entries, word: (place, _put(below, parts, done + 1, value))})
