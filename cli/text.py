"""Words and tables for people: durations, sizes, columns. Pure but for the width of the terminal."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

import click

COLOURS = {
    "COMPLETED": "green", "FAILED": "red", "HALTED": "yellow", "QUEUED": "yellow", "PENDING": "yellow",
    "NOT_STARTED": "yellow", "DOWNLOADING": "cyan", "PROCESSING": "cyan", "STORING": "cyan",
    "Succeeded": "green", "Failed": "red", "Error": "red", "Running": "cyan", "Warning": "yellow",
}  # fmt: skip


def short_duration(seconds: float | None) -> str:
    """The largest unit: `45s`, `12m`, `3h`, `2d`; empty for None."""
    if seconds is None:
        return ""
    seconds = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size or (unit == "d" and seconds >= size):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def duration(seconds: float) -> str:
    """The two largest units: `45s`, `2m 5s`, `3h 12m`, `2d 4h`."""
    return f"{max(0.0, seconds):.1f}s" if seconds < 10 else whole_duration(seconds)


def whole_duration(seconds: float) -> str:
    """As `duration`, of what is known to the second."""
    whole = max(0, int(seconds))
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{amount}{unit}" for amount, unit in parts[:2])


def date(seconds: float | None) -> str:
    """Local time of the reader, to the second; empty for None."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def percent(progress: float | None) -> str:
    """Rounded down: 100% is said of what is whole only."""
    return "" if progress is None else f"{int(progress * 100 + 1e-9)}%"


def number(value: object, digits: int) -> str:
    """A metric; one that is no number, as JSON has it: `NaN`."""
    return f"{value:.{digits}g}" if isinstance(value, float) else printable(str(value))


def printable(text: str) -> str:
    """One line without control characters: a job's name must not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def width_of(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(bool(unicodedata.combining(c)) for c in text)


def shortened(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return text + "…"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Aligned lines, headings first. Columns named in `right` are flush right; states are coloured."""
    columns = []
    for cells in zip(headings, *rows, strict=True):
        widths = [width_of(cell) for cell in cells]
        widest = max(widths)
        spaces = [" " * (widest - width) for width in widths]
        shown = [click.style(cell, fg=COLOURS[cell]) if cell in COLOURS else cell for cell in cells]
        to_right = cells[0] in right
        columns.append([s + c if to_right else c + s for c, s in zip(shown, spaces, strict=True)])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def terminal_size() -> tuple[int, int]:
    """Columns and lines of the terminal, COLUMNS and LINES if set."""
    import shutil

    size = shutil.get_terminal_size()
    return size.columns, size.lines


def terminal_width() -> int:
    return terminal_size()[0]


def plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def coloured() -> bool | None:
    """For click.echo: None lets it decide by the terminal, False for those who set NO_COLOR."""
    return False if os.environ.get("NO_COLOR") else None
