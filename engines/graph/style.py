"""How phases look: colours that stay apart for colour-blind people (Okabe and Ito), each with a sign of its own."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """Border and ground of a box, and its sign as strokes in a square of 12 by 12."""

    stroke: str
    fill: str
    sign: str = ""


STYLES = {
    "Succeeded": Style("#009e73", "#e6f5f1", "M2 6.5 L5 9.5 L10.5 2.5"),
    "Failed": Style("#d55e00", "#fbeee5", "M2.5 2.5 L9.5 9.5 M9.5 2.5 L2.5 9.5"),
    "Error": Style("#cc79a7", "#faf1f6", "M6 1.5 L11 10.5 L1 10.5 Z M6 5 L6 7.6 M6 9 L6 9.2"),
    "Running": Style("#0072b2", "#e5f1f7", "M3 1.5 L10 6 L3 10.5 Z"),
    "Pending": Style("#b8860b", "#fdf5e6", "M6 1.2 A4.8 4.8 0 1 1 5.99 1.2 M6 3 L6 6 L8.3 7.5"),
    "Skipped": Style("#767676", "#f4f4f4", "M6 1.2 A4.8 4.8 0 1 1 5.99 1.2 M2.7 9.3 L9.3 2.7"),
    "Omitted": Style("#767676", "#f4f4f4", "M6 1.2 A4.8 4.8 0 1 1 5.99 1.2 M2.7 9.3 L9.3 2.7"),
}
WAITS = Style("#b8860b", "#fdf5e6", "M4 2 L4 10 M8 2 L8 10")
PLAIN = Style("#5a6472", "#ffffff")


def style(phase: str, waits: bool = False) -> Style:
    """The style of a box in `phase`; one that has not begun is plain."""
    return WAITS if waits else STYLES.get(phase, PLAIN)
