"""Collectives and parameter servers on one machine, against gloo's all-reduce.

    python benchmarks/collectives.py [--launches 7] [--learners 2,4] [--mib 1,16,64,256] [--python PYTHON]

Each launch starts all ways anew, in turn, in processes of one thread each; of each the median time of several calls
counts, as the slowest rank had it. Shown are gloo's time, and for each way how many times as fast it is (median over
the launches, least and most) and its processor time beside gloo's. The ways: `tcp` and `shared` all-reduce an array of
one's own, `in place` one that `Overlay.empty` has made; `server` is a step of SGD with as many parameters at one
parameter server. Needs PyTorch: PYTHON is one that has it (default: this one, else /usr/bin/python3). Exits with 1
where, from 16 MiB on, a ratio is below what is wanted or a way takes more processor time than gloo.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MIB = 1 << 20
WAYS = ("gloo", "tcp", "shared", "in place", "server")
CLAIMED = {  # ratio of bandwidth to gloo's, by way and number of learners, from 16 MiB on
    ("tcp", 2): 1.6, ("tcp", 4): 1.2, ("shared", 2): 2.5, ("shared", 4): 2.5, ("in place", 2): 6.0,
    ("in place", 4): 6.0, ("server", 2): 1.0,
}  # fmt: skip
CPU_MOST = 1.0  # times gloo's processor time, by any way, from 16 MiB on
SERVER_MIB = 64
WARM_UP = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--learners", default="2,4")
    parser.add_argument("--mib", default="1,16,64,256")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--python")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(**json.loads(options.worker))
        return 0
    python = options.python or with_torch()
    missed = False
    print(f"{'learners':>8} {'MiB':>4} {'way':>9} {'gloo ms':>8} {'times as fast':>22} {'CPU / gloo':>10}")
    for learners in map(int, options.learners.split(",")):
        for mib in map(int, options.mib.split(",")):
            for way, ratios, milliseconds, cpu in measured(python, learners, mib, options):
                said = f"{statistics.median(ratios):6.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
                claimed = CLAIMED.get((way, learners), 0.0)
                mark = f"   below {claimed}" if mib >= 16 and statistics.median(ratios) < claimed else ""
                mark += f"   CPU above {CPU_MOST}" if mib >= 16 and cpu > CPU_MOST else ""
                missed |= bool(mark)
                print(f"{learners:8} {mib:4} {way:>9} {milliseconds:8.2f} {said:>22} {cpu:10.2f}{mark}", flush=True)
    return int(missed)


def with_torch() -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import torch, numpy"], capture_output=True).returncode == 0:
            return python
    sys.exit("no Python with PyTorch and NumPy: name one with --python (Debian: apt install python3-torch)")


def measured(
    python: str, learners: int, mib: int, options: argparse.Namespace
) -> list[tuple[str, list[float], float, float]]:
    """For each way its ratios, gloo's milliseconds, and the ratio of processor times."""
    ways = [way for way in WAYS if way in options.ways.split(",") or way == "gloo"]
    ways = [way for way in ways if way != "server" or (learners == 2 and mib == SERVER_MIB)]
    times: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    for launch in range(options.launches):
        for way in ways[launch % len(ways) :] + ways[: launch % len(ways)]:
            seconds, processor = launched(python, way, learners, mib)
            times[way].append(seconds)
            cpu[way].append(processor)
    gloo = times["gloo"]
    return [
        (
            way,
            [one / other for one, other in zip(gloo, times[way], strict=True)],
            1000 * statistics.median(gloo),
            statistics.median(cpu[way]) / statistics.median(cpu["gloo"]),
        )
        for way in ways
        if way != "gloo"
    ]


def launched(python: str, way: str, learners: int, mib: int) -> tuple[float, float]:
    """(seconds of a call, processor seconds of all processes in a call)."""
    ranks = learners + (way == "server")
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
    addresses = [door.getsockname()[:2] for door in doors]
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = free.getsockname()[1]
    repeats = max(5, min(200, 512 // mib))
    about = {"way": way, "size": learners, "mib": mib, "repeats": repeats, "addresses": addresses, "meeting": meeting}
    environment = {**os.environ, "PYTHONPATH": str(library()), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [python, __file__, "--worker", json.dumps({**about, "rank": rank, "door": door.fileno()})],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[door.fileno()],
            text=True,
        )
        for rank, door in enumerate(doors)
    ]
    for door in doors:
        door.close()
    said = [json.loads(process.communicate()[0]) for process in processes]
    return max(one["seconds"] for one in said[:learners]), sum(one["cpu"] for one in said)


@functools.cache
def library() -> Path:
    """A folder with the learner library alone, for a Python that has not installed us."""
    folder = Path(tempfile.mkdtemp())
    package = folder / "ffdl"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "learner").symlink_to(Path(__file__).resolve().parents[1] / "learner")
    atexit.register(shutil.rmtree, folder)
    return folder


# --- in the processes -------------------------------------------------------------------------------------------------


def work(way: str, rank: int, size: int, mib: int, repeats: int, addresses: Any, meeting: int, door: int) -> None:
    import numpy as np

    listener, addresses = socket.socket(fileno=door), [tuple(address) for address in addresses]
    length = mib * MIB // 4
    if way == "gloo":
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{meeting}", rank=rank, world_size=size)
        tensor = torch.ones(length)

        def call() -> None:
            dist.all_reduce(tensor)
            tensor.fill_(1.0) if tensor[0] > 1e30 else None

    elif way == "server":
        call = server_call(rank, size, length, repeats, addresses, listener)
    else:
        from ffdl.learner.overlay import Overlay
        from ffdl.learner.rendezvous import Place

        overlay = Overlay(Place(rank, 1, b"k"), addresses, listener, shared_memory=way != "tcp")
        array = overlay.empty(length) if way == "in place" else np.empty(length, np.float32)
        array.fill(0.0)

        def call() -> None:
            overlay.all_reduce(array)

    taken = []
    for _ in range(WARM_UP):
        call()
    before = time.process_time()
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": statistics.median(taken), "cpu": (time.process_time() - before) / repeats}))


def server_call(rank: int, size: int, length: int, repeats: int, addresses: Any, listener: socket.socket) -> Any:
    """A step at one parameter server: the last rank is it."""
    import numpy as np

    from ffdl.learner.parameter_server import SGD, ParameterServer
    from ffdl.learner.rendezvous import Place

    if rank < size:
        parameters, gradient = np.zeros(length, np.float32), np.ones(length, np.float32)
        server = ParameterServer(Place(rank, 1, b"k"), addresses[size:], parameters, SGD(1e-3))
        return lambda: server.step(gradient)
    begun = time.process_time()
    serve(rank - size, size, "sync", listener)
    print(json.dumps({"seconds": 0.0, "cpu": (time.process_time() - begun) / (repeats + WARM_UP)}))
    raise SystemExit


def serve(number: int, learners: int, mode: str, listener: socket.socket) -> None:
    """A parameter server, until this process's standard input ends."""
    from ffdl.learner.serving import Server
    from ffdl.learner.world import World

    class Alone:
        """A job that has nothing to say."""

        generation, halting = 1, False
        rank = number
        world = World(1, 0, learners, b"k", mode=mode)

        def restore(self) -> None:
            return None

        def listener(self) -> socket.socket:
            return listener

        def look(self) -> None:
            if select.select([sys.stdin], [], [], 0)[0]:
                raise EOFError

    with contextlib.suppress(EOFError):
        Server().serve(Alone())  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
