"""What is drawn: boxes in boxes, and edges between those of one box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

NOT_STARTED = ""  # the phase of what no node is there for
JOINT = "joint"  # the kind of a point where the edges of several boxes meet


@dataclass(frozen=True)
class Edge:
    """From the box `source` to the box `target` (ids). `loose`: drawn as a side track, like an exit handler's."""

    source: str
    target: str
    label: str = ""
    loose: bool = False


@dataclass
class Box:
    """A task, a step, a loop or a template's run. `id` is unique in a drawing; `facts` are for whoever asks for more.

    A box without a title is only there for what is in it.
    """

    id: str
    title: str
    subtitle: str = ""
    phase: str = NOT_STARTED
    waits: bool = False
    kind: str = ""
    facts: str = ""
    children: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def all(self) -> Iterator[Box]:
        """The box, then all in it."""
        yield self
        for child in self.children:
            yield from child.all()


def in_order(boxes: list[Box], edges: list[Edge]) -> list[Box]:
    """`boxes` so that each comes after what leads to it, else as they stand; what is in a cycle comes as it stands."""
    waits_for: dict[str, set[str]] = {box.id: set() for box in boxes}
    for edge in edges:
        if edge.target in waits_for and edge.source in waits_for:
            waits_for[edge.target].add(edge.source)
    ordered: list[Box] = []
    done: set[str] = set()
    left = list(boxes)
    while left:
        ready = [box for box in left if waits_for[box.id] <= done] or left[:1]
        ordered += ready
        done |= {box.id for box in ready}
        left = [box for box in left if box.id not in done]
    return ordered
