"""A step whose gradients travel while others are computed, against the longer one of computing and communication.

    python benchmarks/overlap.py [--launches 7] [--mib 32] [--buckets 16] [--ways gpu,link,tcp,shared]

Two learners compute buckets of gradients, one after the other, and hand each to `all_reduce_async` as soon as it is
there. Each launch measures three things in turn: the computing alone, the communication alone, and both together.
Computing is made as long as communication: there overlapping is worth most. Shown is the time of both together beside
that of the longer one, and beside the least that can be: nothing overlaps the first bucket's computing and the last
one's communication, and no core does two things at once. "busy": how much of the cores' time each takes alone, with
what else uses them, which is measured by waiting as long.

`gpu`: each learner behind a link of 1 Gbit/s (network namespaces and `tc tbf`; needs root) and with a core of its own;
computing is waiting, as for a GPU. `link`: the same, but computing is products of NumPy matrices, all the core can do:
what communication takes of it, the kernel's part and the links' own as well, comes on top, however they overlap.
`tcp` and `shared`: products, between learners of one machine, where the processors move the bytes themselves: two
learners on two cores leave none for it, so that there is next to nothing to be won. Exits with 1 where `gpu` or `link`
is above 1.15 times the longer one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from link import links
from processes import Together, launched

MIB = 1 << 20
LEARNERS = 2
LINKED = {"gpu", "link"}
LIMIT = 1.15
REPEATS = 5
SIDE = 256  # of the matrices
PHASES = ("waiting", "computing", "communication", "together")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--mib", type=int, default=32, help="of float32 gradients in all")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--ways", default="gpu,link,tcp,shared")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return 0
    ways = options.ways.split(",")
    if LINKED.intersection(ways) and os.geteuid():
        print("no link: network namespaces need root")
        ways = [way for way in ways if way not in LINKED]
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with links(LEARNERS) if LINKED.intersection(ways) else contextlib.nullcontext([]) as names:
        for launch in range(options.launches):
            for way in ways[launch % len(ways) :] + ways[: launch % len(ways)]:
                about = {"way": way, "mib": options.mib, "buckets": options.buckets}
                found[way].append(launched(__file__, LEARNERS, inside=names if way in LINKED else (), **about))
    missed = False
    print(f"{options.mib} MiB in {options.buckets} buckets, {options.launches} launches; medians in ms (least - most)")
    heading = f"{'':8} {'computing':>10} {'busy':>5} {'communication':>14} {'busy':>5} {'together':>9}"
    print(f"{heading} {'of the longer':>20} {'of the least':>20}")
    for way, runs in found.items():
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        shown = [f"{1000 * middle[name]:.1f} {middle[name + ' busy']:5.0%}" for name in ("computing", "communication")]
        longer = [run["together"] / max(run["computing"], run["communication"]) for run in runs]
        least = [run["together"] / at_least(run, options.buckets) for run in runs]
        short = way in LINKED and statistics.median(longer) > LIMIT
        missed |= short
        ratios = [f"{statistics.median(one):.2f} ({min(one):.2f} - {max(one):.2f})" for one in (longer, least)]
        mark = f"   above {LIMIT}" if short else ""
        times = f"{shown[0]:>16} {shown[1]:>20} {1000 * middle['together']:9.1f}"
        print(f"{way:8} {times} {ratios[0]:>20} {ratios[1]:>20}{mark}")
    return int(missed)


def at_least(run: dict[str, float], buckets: int) -> float:
    """Seconds that both take together, whoever overlaps them."""
    computing, communication = run["computing"], run["communication"]
    busy = run["communication busy"] - run["waiting busy"]
    last = communication / buckets  # in which the cores do nothing else
    cores = computing * run["computing busy"] + communication * busy + last * (1 - busy)
    return max(computing + last, communication + computing / buckets, cores)


# --- in the processes -------------------------------------------------------------------------------------------------


def work(text: str) -> None:
    together, about = Together.read(text)
    if about["way"] in LINKED:  # a machine of its own would not compute with another learner's core
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[together.rank % len(cores)]})
    with together.overlay(shared_memory=about["way"] == "shared") as overlay:
        gradients = np.ones(about["mib"] * MIB // 4, np.float32)
        buckets = np.array_split(gradients, about["buckets"])
        left, right = np.random.default_rng(together.rank).random((2, SIDE, SIDE), np.float32)
        product = np.empty_like(left)
        products, waits = 1, 0.0

        def compute() -> None:
            if about["way"] == "gpu":
                time.sleep(waits)
                return
            for _ in range(products):
                np.matmul(left, right, out=product)

        def computing() -> None:
            for _ in buckets:
                compute()

        def communication() -> None:
            for pending in [overlay.all_reduce_async(bucket, "mean") for bucket in buckets]:
                pending.wait()

        def both() -> None:
            on_their_way = []
            for bucket in buckets:
                compute()
                on_their_way.append(overlay.all_reduce_async(bucket, "mean"))
            for pending in on_their_way:
                pending.wait()

        def seconds(phase: Callable[[], None]) -> float:
            overlay.barrier()
            begun = time.perf_counter()
            phase()
            return time.perf_counter() - begun

        seconds(communication)
        wanted = statistics.median(seconds(communication) for _ in range(3))
        agreed = np.array([wanted / len(buckets)])
        overlay.all_reduce(agreed, "mean")
        products, waits = 20, float(agreed[0])
        for _ in range(3):  # the longer it is computed, the surer is how long a product takes
            each = statistics.median(seconds(compute) for _ in buckets) / products
            products = max(1, round(waits / each))
        phases = dict(zip(PHASES, (lambda: time.sleep(wanted), computing, communication, both), strict=True))
        times: dict[str, list[float]] = {name: [] for name in PHASES}
        cores = dict.fromkeys(PHASES, 0.0)
        for _ in range(REPEATS):
            for name, phase in phases.items():
                before = busy()
                times[name].append(seconds(phase))
                cores[name] += busy() - before
        said = {name: statistics.median(taken) for name, taken in times.items()}
        said |= {f"{name} busy": cores[name] / sum(times[name]) / (os.cpu_count() or 1) for name in PHASES}
        print(json.dumps(said))


def busy() -> float:
    """Seconds that this machine's cores have been busy, all of them, since it began: proc_stat(5)."""
    with open("/proc/stat") as stream:
        user, nice, system, _idle, _iowait, interrupts, softly = map(int, stream.readline().split()[1:8])
    return (user + nice + system + interrupts + softly) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
