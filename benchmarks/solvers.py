"""The solvers beside each other where one of four learners is slow: how well digits are read, over time.

    python benchmarks/solvers.py [--launches 7] [--seconds 20] [--svg FILE]

Four learners train the network of examples/digits with 16 images each a step; the fourth one sleeps after each of its
steps as long as 4 of them take. In each launch the ways are measured in turn: the overlay, and one parameter server in
each of its modes. Shown are, as medians over the launches, least and most in brackets, the seconds until the first
learner's model reads 90, 95 and 97 % of the images that it never saw, its best share, and the steps it took. --svg
writes the medians as a picture.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from processes import Together, launched

LEARNERS, BATCH, SLOW_BY = 4, 16, 4
WAYS = ("overlay", "sync", "async", "easgd", "average")
GOALS = (0.90, 0.95, 0.97)
LOOKS = 80  # in a run
COLOURS = ("#1b6ca8", "#7f7f7f", "#d1495b", "#2e8b57", "#c98a1b")

Curve = list[tuple[float, float]]  # seconds, share of the images that are read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--svg", metavar="FILE")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        from ffdl.learner.errors import PeerLost

        with contextlib.suppress(PeerLost):  # the first learner's end is that of all
            work(options.worker)
        return 0
    runs: dict[str, list[tuple[Curve, int]]] = {way: [] for way in WAYS}
    for launch in range(options.launches):
        for way in WAYS[launch % len(WAYS) :] + WAYS[: launch % len(WAYS)]:
            mode = "" if way == "overlay" else way
            found = launched(__file__, LEARNERS, int(bool(mode)), mode, seconds=options.seconds)
            runs[way].append((found["curve"], found["steps"]))
    print(f"{'':9}" + "".join(f"{f'{goal:.0%} after':>23}" for goal in GOALS) + f"{'best':>23}{'steps':>20}")
    for way in WAYS:
        times = "".join(f"{spread([until(curve, goal) for curve, _ in runs[way]], '.1f', ' s'):>23}" for goal in GOALS)
        best = spread([100 * max(share for _, share in curve) for curve, _ in runs[way]], ".1f", "%")
        steps = spread([steps for _, steps in runs[way]], ".0f")
        print(f"{way:9}{times}{best:>23}{steps:>20}", flush=True)
    if options.svg:
        curves = {way: middle([curve for curve, _ in runs[way]], options.seconds) for way in WAYS}
        Path(options.svg).write_text(picture(curves, options.seconds))
    return 0


def spread(values: Sequence[float], form: str, unit: str = "") -> str:
    """The median, with least and most."""
    usual, least, most = (
        "never" if value == float("inf") else f"{value:{form}}"
        for value in (statistics.median(values), min(values), max(values))
    )
    return f"{usual}{unit if usual != 'never' else ''} ({least} - {most})"


def until(curve: Curve, goal: float) -> float:
    """Seconds until the curve is there; infinite where it never is."""
    return next((seconds for seconds, share in curve if share >= goal), float("inf"))


def middle(curves: Sequence[Curve], seconds: float) -> Curve:
    """The median of several curves, at the same times."""
    times = np.linspace(0, seconds, LOOKS + 1)
    rows = [np.interp(times, *zip(*curve, strict=True)) for curve in curves]
    return [(float(at), float(share)) for at, share in zip(times, np.median(rows, axis=0), strict=True)]


# --- the picture ------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 360, 52, 16, 96, 44
LOWEST = 0.80  # what is below is not shown


def picture(curves: dict[str, Curve], seconds: float) -> str:
    """Share of images read over seconds, a line a way, as SVG."""

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / seconds

    def y(share: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (max(share, LOWEST) - LOWEST) / (1 - LOWEST))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for percent in range(80, 101, 5):
        at = y(percent / 100)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{percent} %</text>')
    for tick in np.linspace(0, seconds, 5):
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:g} s</text>')
    middle_x = (LEFT + WIDTH - RIGHT) / 2
    caption = f"images read that were never trained on; one of {LEARNERS} learners is {SLOW_BY + 1} times as slow"
    parts.append(f'<text x="{middle_x}" y="{HEIGHT - 6}" text-anchor="middle">{caption}</text>')
    ends = sorted((y(curve[-1][1]), way) for way, curve in curves.items())
    lowest = float("-inf")
    for way, colour in zip(WAYS, COLOURS, strict=True):
        begins = next((at for at, share in curves[way] if share >= LOWEST), seconds)
        points = " ".join(f"{x(at):.1f},{y(share):.1f}" for at, share in curves[way] if at >= begins)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for end, way in ends:  # names beside the ends of their lines, one below the other
        lowest = max(end + 4, lowest + 14)
        colour = COLOURS[WAYS.index(way)]
        parts.append(f'<text x="{WIDTH - RIGHT + 6}" y="{lowest:.1f}" fill="{colour}">{way}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


# --- in the processes -------------------------------------------------------------------------------------------------


def work(text: str) -> None:
    from digits import MOMENTUM, RATE, accuracy_of, gradients_of, initial_state, moved, read_data

    from ffdl.learner.parameter_server import SGD

    together, about = Together.read(text)
    if together.rank >= together.size:
        together.serve()
        return
    (images, digits), held_out = read_data()
    weights = initial_state(1)["weights"]
    parameters = {str(place): weight for place, weight in enumerate(weights)}
    velocity = [np.zeros_like(weight) for weight in weights]
    rng = np.random.default_rng([3, together.rank])
    server = overlay = None
    if together.servers:
        rule = SGD(RATE, MOMENTUM)
        if together.mode == "async":  # each learner's gradient is a step, and others between act as momentum does
            rule = SGD(RATE / (1 - MOMENTUM) / together.size)
        every = 10 if together.mode in ("easgd", "average") else 1
        server = together.parameter_server(parameters, rule, every=every)
    else:
        overlay = together.overlay()
    seen: list[tuple[float, list[np.ndarray]]] = []
    computing: list[float] = []  # seconds that the last steps took by themselves
    begun, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < about["seconds"] or together.rank > 0:
        if together.rank == 0 and passed >= len(seen) * about["seconds"] / LOOKS:
            seen.append((passed, [weight.copy() for weight in weights]))
        start = time.perf_counter()
        rows = rng.integers(0, len(images), BATCH)
        _, gradients = gradients_of(weights, moved(images[rows], rng), digits[rows])
        computing = [*computing[-20:], time.perf_counter() - start]
        if server is not None:
            server.step({str(place): gradient for place, gradient in enumerate(gradients)})
        if overlay is not None:
            for place, gradient in enumerate(gradients):
                overlay.all_reduce(gradient, "mean")
                velocity[place] *= MOMENTUM
                velocity[place] += gradient
                weights[place] -= np.float32(RATE) * velocity[place]
        if together.rank == together.size - 1:
            time.sleep(SLOW_BY * statistics.median(computing))
        steps += 1
    curve = [(at, accuracy_of(then, *held_out)) for at, then in seen]
    print(json.dumps({"curve": curve, "steps": steps}))


if __name__ == "__main__":
    sys.exit(main())
