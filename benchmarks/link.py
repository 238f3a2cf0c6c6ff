"""How much of a link of 1 Gbit/s the ring and parameter servers use, against what the bytes alone would take.

    python benchmarks/link.py [--launches 7] [--mib 32] [--learners 2,4] [--servers 1,2]

Each learner and server is a process in a network namespace of its own, behind a link that `tc tbf` limits in both
directions. The least time is 2 (n-1) M / (n B) for a ring of n, max(M/B, n M / (k B)) for k servers, M being the bytes
of the array. Needs root and iproute2; the namespaces are gone afterwards. Exits with 1 below 90 % (ring) or 85 %
(servers).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from collectives import WARM_UP, library, server_call

MIB = 1 << 20
RATE = 1e9 / 8  # bytes a second
REPEATS = 5
CLAIMED = {"ring": 0.90, "server": 0.85}
PORT = 7070


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--learners", default="2,4")
    parser.add_argument("--servers", default="1,2")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(**json.loads(options.worker))
        return 0
    if os.geteuid():
        sys.exit("network namespaces need root")
    ways = [(learners, 0) for learners in map(int, options.learners.split(","))]
    ways += [(2, servers) for servers in map(int, options.servers.split(","))]
    shares: dict[tuple[int, int], list[float]] = {way: [] for way in ways}
    with links(max(learners + servers for learners, servers in ways)) as names:
        for launch in range(options.launches):
            for way in ways[launch % len(ways) :] + ways[: launch % len(ways)]:
                shares[way].append(least(*way, options.mib * MIB) / launched(names, *way, options.mib))
    missed = False
    print(f"{'':24} {'of the least time, ' + str(options.mib) + ' MiB':>34}")
    for (learners, servers), found in shares.items():
        what = f"{learners} learners, " + (f"{servers} servers" if servers else "ring")
        short = statistics.median(found) < CLAIMED["server" if servers else "ring"]
        missed |= short
        print(f"{what:24} {statistics.median(found):8.1%} ({min(found):.1%} - {max(found):.1%}){'   missed' * short}")
    return int(missed)


def least(learners: int, servers: int, size: int) -> float:
    if not servers:
        return 2 * (learners - 1) * size / (learners * RATE)
    return max(size / RATE, learners * size / (servers * RATE))


@contextlib.contextmanager
def links(count: int) -> Iterator[list[str]]:
    """Namespaces whose only link has the rate, in both directions. Number i has the address 10.77.0.(i + 1).

    Two are joined by a cable, more by a switch. All that is done by the processors of those that are measured, so it is
    as little as can be: TCP paces nothing, as on Linux unless it is told to (bbr takes an interrupt for each packet).
    """
    mark = f"ffdl{os.getpid() % 10000}"
    names = [f"{mark}-{number}" for number in range(count)]
    bridge = f"{mark}b"
    limit = f"tbf rate {RATE * 8:.0f}bit burst 128kb latency 20ms"
    try:
        for name in names:
            ip(f"netns add {name}")
            ip(f"netns exec {name} sysctl -q -w net.ipv4.tcp_congestion_control=reno")
        ends = [f"{mark}f{number}" for number in range(count)]
        if count == 2:
            ip(f"link add {ends[0]} netns {names[0]} type veth peer name {ends[1]} netns {names[1]}")
        else:
            ip(f"link add {bridge} type bridge")
            ip(f"link set {bridge} up")
            for number, name in enumerate(names):
                near = f"{mark}n{number}"
                ip(f"link add {near} type veth peer name {ends[number]} netns {name}")
                ip(f"link set {near} master {bridge} up")
                subprocess.run(f"tc qdisc add dev {near} root {limit}".split(), check=True)
        for number, (name, end) in enumerate(zip(names, ends, strict=True)):
            ip(f"-n {name} addr add 10.77.0.{number + 1}/24 dev {end}")
            ip(f"-n {name} link set {end} up")
            ip(f"-n {name} link set lo up")
            subprocess.run(f"tc -n {name} qdisc add dev {end} root {limit}".split(), check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True)


def ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def launched(names: list[str], learners: int, servers: int, mib: int) -> float:
    """Seconds of a call, as the slowest learner had it."""
    addresses = [(f"10.77.0.{number + 1}", PORT) for number in range(learners + servers)]
    about = {"size": learners, "servers": servers, "length": mib * MIB // 4, "addresses": addresses}
    environment = {**os.environ, "PYTHONPATH": str(library()), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                names[rank],
                sys.executable,
                __file__,
                "--worker",
                json.dumps({**about, "rank": rank}),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(learners + servers)
    ]
    said = [json.loads(process.communicate()[0]) for process in processes]
    return max(one["seconds"] for one in said[:learners])


def work(rank: int, size: int, servers: int, length: int, addresses: list[Any]) -> None:
    import numpy as np

    from ffdl.learner.overlay import Overlay
    from ffdl.learner.rendezvous import Place

    addresses = [tuple(address) for address in addresses]
    listener = socket.create_server(addresses[rank])
    if servers:
        call = server_call(rank, size, length, REPEATS, addresses, listener)
    else:
        overlay = Overlay(Place(rank, 1, b"k"), addresses, listener)
        array = np.zeros(length, np.float32)

        def call() -> None:
            overlay.all_reduce(array)

    for _ in range(WARM_UP):
        call()
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": statistics.median(taken)}))


if __name__ == "__main__":
    sys.exit(main())
