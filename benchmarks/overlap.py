"""A step whose gradients travel while others are computed, against the longer one of computing and communication.

    python benchmarks/overlap.py [--launches 7] [--mib 32] [--layers 64] [--ways gpu,link,tcp,shared] [--computing 1]

Two learners compute the gradients of layers, one after the other, which `Overlay.buckets` sends on their way. Each
launch measures in turn the computing alone, the communication alone, both together, and the computing beside a plain
connection that carries as many bytes each way, with which nothing is done. Computing is made as long as communication,
where overlapping is worth most, or --computing times as long. Shown is the time of both together beside that of the
longer one, and the same with the plain connection, which waits for nothing that is computed.

`gpu`: each learner behind a link of 1 Gbit/s (network namespaces and `tc tbf`; needs root) and with a core of its own;
computing is waiting, as for a GPU. `link`: the same, but computing is products of NumPy matrices, all the core can do:
what the bytes take of it, the kernel's part and the links' own as well, comes on top, however they overlap. `tcp` and
`shared`: products, between learners of one machine, where the processors move the bytes themselves: two learners on two
cores leave none for it, so that there is next to nothing to be won. Exits with 1 where `gpu` or `link` is above 1.15
times the longer one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from link import links
from processes import Together, launched

MIB = 1 << 20
LEARNERS = 2
LINKED = {"gpu", "link"}
LIMIT = 1.15
REPEATS = 5
SIDE = 256  # of the matrices


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--mib", type=int, default=32, help="of float32 gradients in all")
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--ways", default="gpu,link,tcp,shared")
    parser.add_argument("--computing", type=float, default=1.0, help="times as long as communication")
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
                about = {"way": way, "mib": options.mib, "layers": options.layers, "computing": options.computing}
                found[way].append(launched(__file__, LEARNERS, inside=names if way in LINKED else (), **about))
    missed = False
    print(f"{options.mib} MiB in {options.layers} layers, {options.launches} launches; medians in ms (least - most)")
    print(f"{'':8} computing  communication  together {'of the longer':>20} {'plain connection':>20}")
    for way, runs in found.items():
        middle = {name: 1000 * statistics.median(run[name] for run in runs) for name in runs[0]}
        times = f"{middle['computing']:9.1f} {middle['communication']:14.1f} {middle['together']:9.1f}"
        ratios = {}
        for name in ("together", "plain"):
            ratios[name] = [run[name] / max(run["computing"], run["communication"]) for run in runs]
        short = way in LINKED and statistics.median(ratios["together"]) > LIMIT
        missed |= short
        shown = [f"{statistics.median(one):.2f} ({min(one):.2f} - {max(one):.2f})" for one in ratios.values()]
        print(f"{way:8} {times} {shown[0]:>20} {shown[1]:>20}" + (f"   above {LIMIT}" if short else ""))
    return int(missed)


# --- in the processes -------------------------------------------------------------------------------------------------


def work(text: str) -> None:
    together, about = Together.read(text)
    if about["way"] in LINKED:  # a machine of its own would not compute with another learner's core
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[together.rank % len(cores)]})
    with contextlib.ExitStack() as opened:
        overlay = opened.enter_context(together.overlay(shared_memory=about["way"] == "shared"))
        plain = opened.enter_context(plain_socket(together, overlay))
        size = about["mib"] * MIB // about["layers"]
        gradients = overlay.buckets({str(number): np.empty(size // 4, np.float32) for number in range(about["layers"])})
        out, into = bytes(size * about["layers"]), bytearray(size * about["layers"])
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
            for _ in gradients:
                compute()

        def communication() -> None:
            gradients.ready()
            gradients.wait()

        def both() -> None:
            for name in reversed(list(gradients)):
                compute()
                gradients.ready(name)
            gradients.wait()

        def beside_sockets() -> None:
            with beside(lambda: plain.sendall(out)), beside(lambda: plain.recv_into(into, 0, socket.MSG_WAITALL)):
                computing()

        def seconds(phase: Callable[[], None]) -> float:
            overlay.barrier()
            begun = time.perf_counter()
            phase()
            return time.perf_counter() - begun

        seconds(communication)
        wanted = statistics.median(seconds(communication) for _ in range(3))
        agreed = np.array([about["computing"] * wanted / len(gradients)])
        overlay.all_reduce(agreed, "mean")
        products, waits = 20, float(agreed[0])
        for _ in range(3):  # the longer it is computed, the surer is how long a product takes
            each = statistics.median(seconds(compute) for _ in gradients) / products
            products = max(1, round(waits / each))
        phases = {"computing": computing, "communication": communication, "together": both, "plain": beside_sockets}
        times: dict[str, list[float]] = {name: [] for name in phases}
        for _ in range(REPEATS):
            for name, phase in phases.items():
                times[name].append(seconds(phase))
        print(json.dumps({name: statistics.median(taken) for name, taken in times.items()}))


def plain_socket(together: Together, overlay: Any) -> socket.socket:
    """Each one's end of a connection between the two."""
    host = together.addresses[0][0]
    door = socket.create_server((host, 0)) if together.rank == 0 else None
    port = np.array([door.getsockname()[1] if door else 0])
    overlay.broadcast(port)
    if door is None:
        return socket.create_connection((host, int(port[0])))
    with door:
        return door.accept()[0]


@contextlib.contextmanager
def beside(call: Callable[[], object]) -> Iterator[None]:
    """`call` is made in a thread meanwhile. Raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(call)
        yield
        under_way.result()


if __name__ == "__main__":
    sys.exit(main())
