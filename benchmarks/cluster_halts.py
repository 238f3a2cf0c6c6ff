"""Ten halts of one job on a cluster: how long until its pods have ended, and until they are back after the resume.

    python benchmarks/cluster_halts.py [--halts 10] [--learners 2] [--image IMAGE]

Runs in the namespace that FFDL_NAMESPACE or the kubeconfig's context names. IMAGE must have bash. Exits with 1 where
any halt's pods took more than 5 s to end or more than 10 s to be back, or where the last halt took more than 1.2 times
the median.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from ffdl import Client, TrainingJob
from ffdl.engines.argo.access import PODS, Api
from ffdl.engines.argo.connection import connect
from ffdl.learner import contract

LOOK = 0.1  # seconds between two looks at the pods
Pods = list[dict[str, Any]]
BOUNDS = {"all pods ended after the last learner": 5.0, "all pods running after the resume": 10.0}
LAST_BOUND = 1.2  # times the median: what a job has gone through must not make its halts slower


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halts", type=int, default=10)
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--image", default="localhost/debian:bookworm")
    options = parser.parse_args()
    client, api = Client("argo"), Api(connect(None, None, None))
    framework = {"name": "custom", "version": options.image, "command": "while :; do sleep 0.1; done"}
    job = client.submit(
        TrainingJob.from_arguments(
            name="halts", learners=options.learners, cpus=0.1, memory="64MB", framework=framework, halt_grace="2s"
        )
    )
    print(f"{'halt':>4}  {'command':>8}  {'pods ended':>10}  {'pods back':>9}   (seconds)")
    commands, ended, back = [], [], []
    try:
        until(lambda: len(learners_running(pods(api, job.id))) == options.learners)
        for number in range(1, options.halts + 1):
            begun = time.monotonic()
            job.halt(wait=False)
            out = until(lambda: not learners_running(pods(api, job.id)))
            over = until(lambda: not alive(pods(api, job.id)))
            job.wait(60)
            commands.append(time.monotonic() - begun)
            ended.append(over - out)
            resumed = time.monotonic()
            job.resume()
            wanted = options.learners + 1
            back.append(until(lambda wanted=wanted: len(running(pods(api, job.id))) == wanted) - resumed)
            print(f"{number:>4}  {commands[-1]:8.1f}  {ended[-1]:10.1f}  {back[-1]:9.1f}")
    finally:
        job.delete(results=True)
    return int(told(ended, back, commands))


def told(ended: list[float], back: list[float], commands: list[float]) -> bool:
    """Prints what the halts came to, all in seconds; returns whether anything is above its bound."""
    missed = False
    for (what, bound), values in zip(BOUNDS.items(), (ended, back), strict=True):
        missed |= max(values) > bound
        print(f"{what}: median {statistics.median(values):.1f} s, worst {max(values):.1f} s, bound {bound:g} s")
    ratio = commands[-1] / statistics.median(commands)
    print(f"last halt / median halt: {ratio:.2f}, bound {LAST_BOUND:g}")
    return missed or ratio > LAST_BOUND


def until(condition: Callable[[], bool], patience: float = 120.0) -> float:
    """When it became true. Raises TimeoutError."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not get there")
        time.sleep(LOOK)
    return time.monotonic()


def pods(api: Api, job_id: str) -> Pods:
    roles = f"{contract.LABEL_ROLE} in (learner,checkpoint)"
    return list(api.list(PODS, f"{contract.LABEL_JOB}={job_id},{roles}"))


def alive(found: Pods) -> Pods:
    return [pod for pod in found if pod["status"].get("phase") in ("Pending", "Running")]


def running(found: Pods) -> Pods:
    """Those whose main container runs."""
    return [
        pod
        for pod in found
        for container in pod["status"].get("containerStatuses") or ()
        if container["name"] == "main" and "running" in container["state"]
    ]


def learners_running(found: Pods) -> Pods:
    return [pod for pod in running(found) if pod["metadata"]["labels"][contract.LABEL_ROLE] == "learner"]


if __name__ == "__main__":
    sys.exit(main())
