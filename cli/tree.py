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
    marks = [(row.item.mark, row.item.phase) if row.item else None for row in rows]
    return columns(HEADINGS, cells, marks, width)


def columns(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    marks: Sequence[tuple[str, str] | None],
    width: int | None,
) -> list[str]:
    """Aligned lines, headings first, the signs in the first column coloured by their phases; a line without one stands
    by itself.

    Where `width` is too little, the second column goes first, then the last one is shortened, then the first.
    """
    found = [headings, *rows]
    last = len(headings) - 1
    aligned = [headings, *(row for row, mark in zip(rows, marks, strict=True) if mark is not None)]
    widths = [max(text.width_of(line[column]) for line in aligned) for column in range(last)]
    if width is not None and sum(widths) + 2 * last + SHORTEST > width:
        widths[1] = 0
    room = None if width is None else width - sum(each + 2 for each in widths if each)
    drawn = []
    for mark, line in zip([None, *marks], found, strict=True):
        first = line[0] if width is None else text.shortened(line[0], max(SHORTEST, width - 8))
        parts = [_padded(_coloured(first, mark), first, widths[0])]
        parts += [_padded(line[column], line[column], widths[column]) for column in range(1, last) if widths[column]]
        words = line[last] if room is None else text.shortened(line[last], room) if room >= 1 else ""
        drawn.append("  ".join([*parts, words]).rstrip())
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


def _coloured(step: str, mark: tuple[str, str] | None) -> str:
    if mark is None or mark[0] not in step:
        return step
    before, sign, after = step.partition(mark[0])
    return f"{before}{click.style(sign, fg=COLOURS.get(mark[1]))}{after}"


def _padded(shown: str, plain: str, width: int) -> str:
    return shown + " " * (width - text.width_of(plain))
