"""How long a snapshot stalls training, against a plain memory copy of the same state.

    python benchmarks/snapshot.py [--runs N]

All figures come from one run: for each size the three are measured in turn, in changing order, and the medians of times
and of ratios are shown. `warm` is numpy.copyto into memory that is already there, `fresh` is array.copy(). The disk is
not part of it: a thread persists the copy. Exits with 1 if a snapshot takes more than 1.5 times a warm copy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ffdl.learner import encoding
from ffdl.learner.saver import Arena

MIB = 1 << 20
SIZES = (16, 32, 64, 128, 256)  # MiB
LAYERS = 48  # arrays in the state: weights and biases of a usual network
LIMIT = 1.5


def training_state(size: int) -> dict[str, Any]:
    """A state of about `size` bytes, as a script has it: matrices and small vectors, an RNG, some plain values."""
    rng = np.random.default_rng(1)
    side = int((size / 4 / LAYERS) ** 0.5)
    layers = [
        {"weights": rng.random((side, side), np.float32), "bias": rng.random(side, np.float32)} for _ in range(LAYERS)
    ]
    return {"step": 7, "rng": rng.bit_generator.state, "losses": [0.5, 0.25], "layers": layers}


def arrays(state: dict[str, Any]) -> list[Any]:
    return [array for layer in state["layers"] for array in layer.values()]


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(size: int, runs: int) -> dict[str, float]:
    """Medians in seconds, and their ratios."""
    state = training_state(size)
    sources = arrays(state)
    targets = [np.zeros_like(array) for array in sources]
    arena = Arena()
    arena.reserve(encoding.encode(state).size)

    def snapshot() -> None:
        encoded = encoding.encode(state)
        encoded.contents = arena.hold(encoded)

    def warm() -> None:
        for target, source in zip(targets, sources, strict=True):
            np.copyto(target, source)

    def fresh() -> None:
        [array.copy() for array in sources]

    ways = {"snapshot": snapshot, "warm": warm, "fresh": fresh}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs):
        names = list(ways)
        for name in names[run % 3 :] + names[: run % 3]:  # who comes first finds other things in the caches
            times[name].append(seconds(ways[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {
        f"snapshot/{name}": statistics.median(a / b for a, b in zip(times["snapshot"], times[name], strict=True))
        for name in ("warm", "fresh")
    }
    return {"mib": sum(array.nbytes for array in sources) / MIB, **medians, **ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21, help="measurements of each size (default 21)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = [measure(size * MIB, options.runs) for size in SIZES]
    if options.json:
        print(json.dumps(rows))
    else:
        print("   state    snapshot   warm copy  fresh copy   snapshot/warm  snapshot/fresh")
        for row in rows:
            print(
                f"{row['mib']:5.0f} MiB {row['snapshot'] * 1e3:8.2f} ms {row['warm'] * 1e3:8.2f} ms "
                f"{row['fresh'] * 1e3:8.2f} ms {row['snapshot/warm']:12.2f} {row['snapshot/fresh']:15.2f}"
            )
    return 0 if all(row["snapshot/warm"] <= LIMIT for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
