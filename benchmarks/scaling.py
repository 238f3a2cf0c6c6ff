"""Digits with two learners on two cores against one: steps and samples a second, the share of communication.

    python benchmarks/scaling.py [--launches 7] [--steps 40] [--batch 256]

The network of examples/digits (1.1 million float32 parameters), one thread a learner, batches of that size over all
learners together, so that all ways take the same steps. In each launch the ways are measured in turn: one learner; two
that add up their gradients by the overlay; two with a synchronous parameter server, which has no core of its own. Shown
are medians, and least and most, of steps a second, how many times as fast that is as one learner in the same launch,
and the share of the first learner's time in calls of the overlay, or of the server, whose optimizer is part of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import numpy as np
from processes import Together, launched

WAYS = {"one learner": (1, 0), "two, overlay": (2, 0), "two, sync server": (2, 1)}  # learners and servers
WARM_UP = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return 0
    speed: dict[str, list[float]] = {way: [] for way in WAYS}
    share: dict[str, list[float]] = {way: [] for way in WAYS}
    ways = list(WAYS)
    for launch in range(options.launches):
        for way in ways[launch % len(ways) :] + ways[: launch % len(ways)]:
            learners, servers = WAYS[way]
            mode = "sync" if servers else ""
            found = launched(__file__, learners, servers, mode, steps=options.steps, batch=options.batch)
            speed[way].append(options.steps / found["seconds"])
            share[way].append(found["communication"] / found["seconds"])
    print(f"batches of {options.batch}, {options.launches} launches of {options.steps} steps; medians (least - most)")
    print(f"{'':16} {'steps/s':>21} {'samples/s':>10} {'times as fast':>20} {'communication':>21}")
    for way in WAYS:
        ratios = [two / one for two, one in zip(speed[way], speed["one learner"], strict=True)]
        samples = statistics.median(speed[way]) * options.batch
        shares = f"{statistics.median(share[way]):7.1%} ({min(share[way]):.1%} - {max(share[way]):.1%})"
        print(f"{way:16} {shown(speed[way]):>21} {samples:10.0f} {shown(ratios):>20} {shares:>21}", flush=True)
    return 0


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})"


# --- in the processes -------------------------------------------------------------------------------------------------


def work(text: str) -> None:
    from digits import MOMENTUM, RATE, gradients_of, initial_state, read_data

    from ffdl.learner.parameter_server import SGD

    together, about = Together.read(text)
    if together.rank >= together.size:
        together.serve()
        return
    (images, digits), _ = read_data()
    weights = initial_state(1)["weights"]
    parameters = {str(place): weight for place, weight in enumerate(weights)}
    velocity = [np.zeros_like(weight) for weight in weights]
    server = together.parameter_server(parameters, SGD(RATE, MOMENTUM)) if together.servers else None
    overlay = together.overlay() if server is None and together.size > 1 else None
    begun = communication = 0.0
    for step in range(-WARM_UP, about["steps"]):
        if step == 0:
            begun, communication = time.perf_counter(), 0.0
        rows = np.random.default_rng([2, step + WARM_UP]).permutation(len(images))[: about["batch"]]
        own = rows[together.rank :: together.size]
        _, gradients = gradients_of(weights, images[own], digits[own])
        ready = time.perf_counter()
        if server is not None:
            server.step({str(place): gradient for place, gradient in enumerate(gradients)})
            communication += time.perf_counter() - ready
            continue
        if overlay is not None:
            for gradient in gradients:
                overlay.all_reduce(gradient, "mean")
            communication += time.perf_counter() - ready
        for place, gradient in enumerate(gradients):
            velocity[place] *= MOMENTUM
            velocity[place] += gradient
            weights[place] -= np.float32(RATE) * velocity[place]
    print(json.dumps({"seconds": time.perf_counter() - begun, "communication": communication}))


if __name__ == "__main__":
    sys.exit(main())
