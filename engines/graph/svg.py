"""A drawing as SVG: one file without scripts, readable by a screen reader and in print."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from .layout import Placed, Point, Route, layout
from .model import JOINT, Box
from .style import style

TITLE_SIZE, SMALL_SIZE = 13, 11
MARGIN, LINE, SIGN = 16.0, 17.0, 18.0  # around all; height of a line of text; width of a sign and its gap
LONGEST = 44  # characters of a title or subtitle; the whole of it is in the tooltip
FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
_STYLE = f"""\
text{{font-family:{FONT};font-size:{TITLE_SIZE}px;fill:#1c2430}}
.small{{font-size:{SMALL_SIZE}px;fill:#4a5462}}
.edge{{fill:none;stroke:#7a8594;stroke-width:1.4}}
.loose{{stroke-dasharray:5 4}}
.todo{{stroke-dasharray:4 3}}
.sign{{fill:none;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}}
.ground{{fill:#fff;fill-opacity:.9}}"""


def svg(root: Box, name: str) -> str:
    """The drawing, its root's words left out; `name` is what it is called."""
    placed = layout(root, measure).moved(MARGIN, MARGIN)
    phases = Counter(_phase(box) for box in root.all() if not box.children and box.title and box.phase)
    legend = [*_legend(phases, placed.height + 2 * MARGIN)]
    width = max(placed.width + 2 * MARGIN, MARGIN + sum(_legend_width(p, n) for p, n in phases.items()))
    height = placed.height + 2 * MARGIN + (LINE + MARGIN if phases else 0.0)
    told = ", ".join(f"{count} {phase}" for phase, count in phases.most_common())
    begun = any(box.phase for box in root.all())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(name)}</title>",
        f"<desc>{escape(told or 'The Workflow as it is written')}</desc>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 Z" fill="#7a8594"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        *_inside(placed, begun),
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def measure(box: Box) -> tuple[float, float]:
    """Width and height of a box's own words, its padding included."""
    if not box.title:
        return 0.0, 0.0
    sign = SIGN if box.phase else 0.0
    width = max(sign + text_width(_cut(box.title), TITLE_SIZE), text_width(_cut(box.subtitle), SMALL_SIZE))
    return max(56.0, width + 24.0), 12.0 + LINE * (2 if box.subtitle else 1) + (2.0 if box.children else 0.0)


def text_width(text: str, size: float) -> float:
    """About how wide `text` is in the fonts above; rather more than less."""
    return sum(_em(character) for character in text) * size


def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in " .,:;'|!ijlIt()[]{}/-":
        return 0.42
    return 0.86 if character in "mwMW@%&" or character.isupper() else 0.64


def _inside(placed: Placed, begun: bool) -> Iterator[str]:
    for route in placed.routes:
        yield from _edge(route, {child.box.id: child.box for child in placed.children})
    for child in placed.children:
        yield from _box(child, begun)


def _box(placed: Placed, begun: bool) -> Iterator[str]:
    box, look = placed.box, style(placed.box.phase, placed.box.waits)
    if box.kind == JOINT:
        x, y, radius = placed.x + placed.width / 2, placed.y + placed.height / 2, placed.width / 2
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="#7a8594"/>'
        return
    yield "<g>"
    facts = [box.title, box.subtitle, _phase(box) or ("not begun" if begun else ""), box.facts]
    yield f"<title>{escape(chr(10).join(filter(None, facts)))}</title>"
    todo = ' class="todo"' if begun and not box.phase else ""
    fill = look.fill if not box.children else "#fafbfc"
    yield (
        f'<rect x="{placed.x:.1f}" y="{placed.y:.1f}" width="{placed.width:.1f}" height="{placed.height:.1f}" rx="7" '
        f'fill="{fill}" stroke="{look.stroke}" stroke-width="1.5"{todo}/>'
    )
    left, baseline = placed.x + 12.0, placed.y + 6.0 + LINE - 4.0
    if look.sign:
        yield _sign(look.sign, look.stroke, left, baseline - 10.5)
    yield f'<text x="{left + (SIGN if look.sign else 0.0):.1f}" y="{baseline:.1f}">{escape(_cut(box.title))}</text>'
    if box.subtitle:
        yield f'<text class="small" x="{left:.1f}" y="{baseline + LINE:.1f}">{escape(_cut(box.subtitle))}</text>'
    yield "</g>"
    yield from _inside(placed, begun)


def _sign(strokes: str, colour: str, x: float, y: float) -> str:
    return f'<path class="sign" d="{strokes}" stroke="{colour}" transform="translate({x:.1f} {y:.1f})"/>'


def _edge(route: Route, boxes: dict[str, Box]) -> Iterator[str]:
    edge = route.edge
    look = "edge loose" if edge.loose else "edge"
    source, target = boxes[edge.source], boxes[edge.target]
    arrow = "" if target.kind == JOINT else ' marker-end="url(#arrow)"'
    told = f"<title>{escape(f'{target.title} after {source.title}')}</title>" if target.title and source.title else ""
    yield f'<path class={quoteattr(look)} d="{_path(route.points)}"{arrow}>{told}</path>'
    if edge.label:
        (x1, y1), (x2, y2) = route.points[1], route.points[2]
        yield from _label(_cut(edge.label), (x1 + x2) / 2, (y1 + y2) / 2)


def _label(words: str, x: float, y: float) -> Iterator[str]:
    """Words in the middle of an edge, on a ground of their own."""
    width = text_width(words, SMALL_SIZE) + 4.0
    yield f'<rect class="ground" x="{x - width / 2:.1f}" y="{y - 8:.1f}" width="{width:.1f}" height="16" rx="3"/>'
    yield f'<text class="small" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{escape(words)}</text>'


def _path(points: tuple[Point, ...]) -> str:
    """Straight along layers, in a curve from one to the next."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        if y2 - y1 < 0.05 and abs(x2 - x1) < 0.05:
            continue
        middle = (y1 + y2) / 2
        straight = abs(x2 - x1) < 0.05
        parts.append(
            f"L{x2:.1f} {y2:.1f}" if straight else f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
        )
    return " ".join(parts)


def _phase(box: Box) -> str:
    return "Waiting" if box.waits else box.phase


def _legend(phases: Counter[str], y: float) -> Iterator[str]:
    x = MARGIN
    for phase, count in phases.items():
        look = style(phase, waits=phase == "Waiting")
        yield _sign(look.sign, look.stroke, x, y)
        yield f'<text class="small" x="{x + SIGN:.1f}" y="{y + 10:.1f}">{count} {escape(phase)}</text>'
        x += _legend_width(phase, count)


def _legend_width(phase: str, count: int) -> float:
    return SIGN + text_width(f"{count} {phase}", SMALL_SIZE) + MARGIN


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
