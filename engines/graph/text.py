"""A drawing as lines of text: what is in what by indentation, what comes after what by arrows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..tree import MARKS, WAITING
from .model import JOINT, Box, in_order

NOT_BEGUN = "·"


class Line(NamedTuple):
    """A box: what is drawn `before` it, the sign of its phase, its words, and the names of what it comes `after`."""

    before: str
    mark: str
    title: str
    subtitle: str
    after: str
    phase: str


def lines(root: Box) -> list[Line]:
    """A line for each box, in the order in which they run."""
    return [line for box in in_order(root.children, root.edges) for line in _lines(box, root, "", "")]


def _lines(box: Box, holder: Box, first: str, rest: str) -> Iterator[Line]:
    yield Line(first, mark(box), box.title, box.subtitle, _after(box, holder), box.phase)
    shown = [child for child in in_order(box.children, box.edges) if child.kind != JOINT]
    for number, child in enumerate(shown):
        last = number == len(shown) - 1
        yield from _lines(child, box, rest + ("└─" if last else "├─"), rest + ("  " if last else "│ "))


def mark(box: Box) -> str:
    """The sign for a box's phase."""
    return WAITING if box.waits else MARKS.get(box.phase, NOT_BEGUN if not box.phase else "?")


def _after(box: Box, holder: Box) -> str:
    titles = {each.id: each.title for each in holder.children}
    words = []
    for edge in _through_joints(box.id, holder):
        words.append(titles.get(edge[0], edge[0]) + (f" ({edge[1]})" if edge[1] else ""))
    return ", ".join(words)


def _through_joints(target: str, holder: Box) -> Iterator[tuple[str, str]]:
    joints = {each.id for each in holder.children if each.kind == JOINT}
    for edge in holder.edges:
        if edge.target != target:
            continue
        if edge.source in joints:
            yield from _through_joints(edge.source, holder)
        else:
            yield edge.source, edge.label
