"""Where boxes and edges go: layer under layer, each box below what leads to it, boxes in boxes laid out by themselves.

After Sugiyama, Tagawa and Toda (1981): longest-path layers, long edges held open by narrow dummies, the order within a
layer by medians, positions as near to the neighbours' as that order allows (isotonic regression).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .model import JOINT, Box, Edge, in_order

PAD, GAP, FALL, LABEL = 16.0, 24.0, 34.0, 16.0  # inside a box; between boxes; between layers, and more for words
JOINT_SIZE, DUMMY_WIDTH = 6.0, 4.0
ORDER_SWEEPS, PLACE_SWEEPS = 8, 10

Point = tuple[float, float]
Measure = Callable[[Box], tuple[float, float]]  # width and height of a box's own words


@dataclass(frozen=True)
class Route:
    """An edge's way, from the bottom of its source to the top of its target: `points` never go up.

    From an even to an odd point (counted from 0) it goes straight down along a layer; from an odd to an even one it
    crosses from one layer to the next.
    """

    edge: Edge
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Placed:
    """A box with its left upper corner and size; what is in it has places of the same picture."""

    box: Box
    x: float
    y: float
    width: float
    height: float
    children: tuple[Placed, ...] = ()
    routes: tuple[Route, ...] = ()

    def moved(self, x: float, y: float) -> Placed:
        children = tuple(child.moved(x, y) for child in self.children)
        routes = tuple(Route(route.edge, tuple((a + x, b + y) for a, b in route.points)) for route in self.routes)
        return replace(self, x=self.x + x, y=self.y + y, children=children, routes=routes)


def layout(box: Box, measure: Measure) -> Placed:
    """`box` at (0, 0) with all that is in it."""
    if box.kind == JOINT:
        return Placed(box, 0.0, 0.0, JOINT_SIZE, JOINT_SIZE)
    width, header = measure(box)
    if not box.children:
        return Placed(box, 0.0, 0.0, width, header)
    layers = _Layers([layout(child, measure) for child in box.children], box.edges)
    pad = PAD if box.title else 0.0
    inner_width, inner_height = layers.size()
    whole = max(width, inner_width + 2 * pad)
    children, routes = layers.placed((whole - inner_width) / 2, header if box.title else 0.0)
    top = header if box.title else 0.0
    return Placed(box, 0.0, 0.0, whole, top + inner_height + pad, children, routes)


@dataclass
class _Cell:
    """A box in its layer, or a dummy that keeps room for an edge."""

    width: float
    height: float
    layer: int
    placed: Placed | None = None
    x: float = 0.0  # its middle

    @property
    def weight(self) -> float:
        return 1.0 if self.placed else 8.0  # long edges should be straight before boxes are centred


class _Layers:
    """The boxes of one box, in layers."""

    def __init__(self, boxes: Sequence[Placed], edges: Sequence[Edge]) -> None:
        order = in_order([each.box for each in boxes], list(edges))
        rank = {box.id: number for number, box in enumerate(order)}
        self._edges = [e for e in edges if e.source in rank and e.target in rank and rank[e.source] < rank[e.target]]
        level = dict.fromkeys(rank, 0)
        for edge in sorted(self._edges, key=lambda edge: rank[edge.source]):
            level[edge.target] = max(level[edge.target], level[edge.source] + 1)
        self._cells: list[_Cell] = []
        self._rows: list[list[int]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
        index = {each.box.id: self._add(_Cell(each.width, each.height, level[each.box.id], each)) for each in boxes}
        self._chains = [self._chain(index[edge.source], index[edge.target]) for edge in self._edges]
        self._held_open = {number: chain[1:-1] for chain in self._chains for number in chain[1:-1]}
        self._above: dict[int, list[int]] = {number: [] for number in range(len(self._cells))}
        self._below: dict[int, list[int]] = {number: [] for number in range(len(self._cells))}
        for chain in self._chains:
            for upper, lower in pairwise(chain):
                self._below[upper].append(lower)
                self._above[lower].append(upper)
        self._sort()
        self._place()
        self._tops, self._bottoms = self._heights()

    def _add(self, cell: _Cell) -> int:
        self._cells.append(cell)
        self._rows[cell.layer].append(len(self._cells) - 1)
        return len(self._cells) - 1

    def _chain(self, source: int, target: int) -> list[int]:
        between = range(self._cells[source].layer + 1, self._cells[target].layer)
        return [source, *(self._add(_Cell(DUMMY_WIDTH, 0.0, layer)) for layer in between), target]

    def _sort(self) -> None:
        """Orders each layer so that few edges cross."""
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(ORDER_SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            rows = self._rows if down else self._rows[::-1]
            for before, row in pairwise(rows):
                place = {number: position for position, number in enumerate(before)}
                beside = self._above if down else self._below
                row[:] = _by_median(row, {number: [place[each] for each in beside[number]] for number in row})
            if (crossings := self._crossings()) < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        self._rows = best

    def _crossings(self) -> int:
        count = 0
        for upper, lower in pairwise(self._rows):
            place = {number: position for position, number in enumerate(lower)}
            passed: list[int] = []
            for number in upper:
                ends = sorted(place[each] for each in self._below[number])
                count += sum(len(passed) - bisect_right(passed, end) for end in ends)
                for end in ends:
                    insort(passed, end)
        return count

    def _place(self) -> None:
        """Gives each cell its middle: as near to its neighbours' as its place in the order allows."""
        for row in self._rows:
            self._spread(row, [0.0] * len(row))
        for sweep in range(PLACE_SWEEPS):
            down = sweep % 2 == 0
            for row in self._rows if down else self._rows[::-1]:
                self._spread(row, [self._wanted(number, down, sweep) for number in row])

    def _wanted(self, number: int, down: bool, sweep: int) -> float:
        last = sweep >= PLACE_SWEEPS - 2
        if last and number in self._held_open:  # a long edge is straight where it can be
            return _mean(self._cells[each].x for each in self._held_open[number])
        near = self._above[number] if down else self._below[number]
        if last or not near:
            near = self._above[number] + self._below[number]
        return _mean(self._cells[each].x for each in near) if near else self._cells[number].x

    def _spread(self, row: list[int], wanted: list[float]) -> None:
        cells = [self._cells[number] for number in row]
        offsets = [0.0]
        for left, right in pairwise(cells):
            gap = GAP if left.placed or right.placed else GAP / 2
            offsets.append(offsets[-1] + (left.width + right.width) / 2 + gap)
        targets = [want - offset for want, offset in zip(wanted, offsets, strict=True)]
        found = isotonic(targets, [cell.weight for cell in cells])
        for cell, position, offset in zip(cells, found, offsets, strict=True):
            cell.x = position + offset

    def _heights(self) -> tuple[list[float], list[float]]:
        """Top and bottom of each layer."""
        labelled = {
            self._cells[chain[0]].layer for edge, chain in zip(self._edges, self._chains, strict=True) if edge.label
        }
        tops, bottoms = [], []
        y = 0.0
        for layer, row in enumerate(self._rows):
            tops.append(y)
            bottoms.append(y + max((self._cells[number].height for number in row), default=0.0))
            far = max((abs(self._cells[a].x - self._cells[b].x) for a in row for b in self._below[a]), default=0.0)
            y = bottoms[-1] + FALL + min(FALL, far / 16) + (LABEL if layer in labelled else 0.0)
        return tops, bottoms

    def _left(self) -> float:
        return min((cell.x - cell.width / 2 for cell in self._cells), default=0.0)

    def size(self) -> tuple[float, float]:
        right = max((cell.x + cell.width / 2 for cell in self._cells), default=0.0)
        return right - self._left(), self._bottoms[-1] if self._bottoms else 0.0

    def placed(self, x: float, y: float) -> tuple[tuple[Placed, ...], tuple[Route, ...]]:
        """Boxes and routes, with their left upper corner at (x, y)."""
        x -= self._left()
        boxes = [
            cell.placed.moved(cell.x - cell.width / 2 + x, self._tops[cell.layer] + y)
            for cell in self._cells
            if cell.placed is not None
        ]
        routes = []
        for edge, chain in zip(self._edges, self._chains, strict=True):
            cells = [self._cells[number] for number in chain]
            first, last = cells[0], cells[-1]
            points = [(first.x, self._tops[first.layer] + first.height), (first.x, self._bottoms[first.layer])]
            for cell in cells[1:-1]:
                points += [(cell.x, self._tops[cell.layer]), (cell.x, self._bottoms[cell.layer])]
            points.append((last.x, self._tops[last.layer]))
            routes.append(Route(edge, tuple((a + x, b + y) for a, b in points)))
        return tuple(boxes), tuple(routes)


def _by_median(row: list[int], near: dict[int, list[int]]) -> list[int]:
    """`row` ordered by the medians of its neighbours' positions; those without any keep their place."""
    movable = sorted((number for number in row if near[number]), key=lambda number: _median(near[number]))
    moved = iter(movable)
    return [next(moved) if near[number] else number for number in row]


def _median(values: Iterable[int]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def isotonic(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing values nearest to `wanted` (weighted least squares), by pooling adjacent violators."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(wanted, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            mean, mass, count = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    return [mean for mean, _, count in pools for _ in range(count)]
