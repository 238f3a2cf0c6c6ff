"""A Workflow's tree of nodes as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from . import text

if TYPE_CHECKING:
    from ..engines.tree import Item, Row

HEADINGS = ("STEP", "TEMPLATE", "TOOK", "MESSAGE")
COLOURS = {
    "Succeeded": "green", "Failed": "red", "Error": "red", "Running": "cyan", "Pending": "yellow",
    "Skipped": "bright_black", "Omitted": "bright_black",
}  # fmt: skip
SHORTEST = 12  # columns of a message worth showing


def lines(rows: Sequence[Row], now: float, width: int | None) -> list[str]:
    """Aligned lines, headings first; no wider than `width` unless that is None."""
    cells = [(_step(row), *_facts(row.item, now)) for row in rows]
    found = [HEADINGS, *cells]
    widths = [max(text.width_of(line[column]) for line in found) for column in range(3)]
    if width is not None and sum(widths) + 4 + SHORTEST > width:
        widths[1] = 0  # the template's name is the least needed
    room = None if width is None else width - sum(each + 2 for each in widths if each)
    drawn = []
    for row, line in zip([None, *rows], found, strict=True):
        step = line[0] if width is None else text.shortened(line[0], max(SHORTEST, width - 8))
        parts = [_padded(_coloured(step, row), step, widths[0])]
        parts += [_padded(line[column], line[column], widths[column]) for column in (1, 2) if widths[column]]
        message = line[3] if room is None else text.shortened(line[3], room) if room >= 1 else ""
        drawn.append("  ".join([*parts, message]).rstrip())
    return drawn


def _step(row: Row) -> str:
    return text.printable(f"{row.lines}{row.item.mark} {row.item.name}" if row.item else f"{row.lines}{row.words}")


def _facts(item: Item | None, now: float) -> tuple[str, str, str]:
    if item is None:
        return "", "", ""
    tries = f"(attempt {item.attempts}) " if item.attempts > 1 else ""
    return text.printable(item.template), took(item, now), text.printable(tries + item.message)


def took(item: Item, now: float) -> str:
    """How long a node ran, or runs; Argo's times are whole seconds."""
    if item.started is None or item.kind == "Skipped" or (item.phase == "Pending" and item.finished is None):
        return ""
    return text.whole_duration((item.finished or now) - item.started)


def _coloured(step: str, row: Row | None) -> str:
    if row is None or row.item is None:
        return step
    before, mark, after = step.partition(row.item.mark)
    return f"{before}{click.style(mark, fg=COLOURS.get(row.item.phase))}{after}"


def _padded(shown: str, plain: str, width: int) -> str:
    return shown + " " * (width - text.width_of(plain))
