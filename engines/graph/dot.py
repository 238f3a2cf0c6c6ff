"""A drawing in Graphviz' language, for `dot -Tsvg` and its like."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .model import JOINT, Box
from .style import style
from .text import mark


def dot(root: Box, name: str) -> str:
    """A digraph; boxes in boxes are clusters."""
    lines = [
        f"digraph {_quoted(name)} {{",
        "  compound=true; rankdir=TB; fontname=Helvetica;",
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=Helvetica];',
        "  edge [fontname=Helvetica, fontsize=10];",
    ]
    for child in root.children:
        lines += _box(child, "  ")
    for box in root.all():
        lines += [f"  {line}" for line in _edges(box)]
    return "\n".join([*lines, "}", ""])


def _box(box: Box, indent: str) -> Iterator[str]:
    look = style(box.phase)
    if box.kind == JOINT:
        yield f'{indent}{_quoted(box.id)} [shape=point, label=""];'
        return
    label = f"{mark(box)} {box.title}" if box.phase else box.title
    attributes = f"color={_quoted(look.stroke)}, tooltip={_quoted(' '.join(filter(None, [box.phase, box.facts])))}"
    if box.children:
        yield f"{indent}subgraph {_quoted('cluster ' + box.id)} {{"
        words = "\n".join(filter(None, [label, box.subtitle]))
        yield f"{indent}  label={_quoted(words)}; style=rounded; {attributes.replace(', ', '; ')};"
        for child in box.children:
            yield from _box(child, indent + "  ")
        yield f"{indent}}}"
        return
    words = "\n".join(filter(None, [label, box.subtitle]))
    yield f"{indent}{_quoted(box.id)} [label={_quoted(words)}, fillcolor={_quoted(look.fill)}, {attributes}];"


def _edges(box: Box) -> Iterator[str]:
    inside = {child.id: child for child in box.children}
    for edge in box.edges:
        if edge.source not in inside or edge.target not in inside:
            continue
        source, target = inside[edge.source], inside[edge.target]
        attributes = [f"label={_quoted(edge.label)}"] if edge.label else []
        attributes += ["style=dashed"] if edge.loose else []
        attributes += [f"ltail={_quoted('cluster ' + source.id)}"] if source.children else []
        attributes += [f"lhead={_quoted('cluster ' + target.id)}"] if target.children else []
        ends = f"{_quoted(_inmost(source, -1))} -> {_quoted(_inmost(target, 0))}"
        yield f"{ends} [{', '.join(attributes)}];"


def _inmost(box: Box, which: int) -> str:
    """Graphviz draws edges between nodes only: one inside stands for a cluster."""
    while box.children:
        box = box.children[which]
    return box.id


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
