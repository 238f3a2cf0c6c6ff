"""What a pass of the embedded engine's controller costs with 1,000 learners, against serialising the same status.

    python benchmarks/controller.py [--learners 1000]

Prints medians: a pass in which nothing happens, one in which a learner ends; the first's ratio to `json.dumps`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from ffdl.engines.local.operator import reconcile
from ffdl.engines.local.pod import PodObservation
from ffdl.workflows.compile import compile_job
from ffdl.workflows.job import TrainingJob

ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", type=int, default=1000)
    options = parser.parse_args()
    framework = {"name": "numpy", "version": "2", "command": "python train.py"}
    sizes = {"learners": options.learners, "cpus": 0.1, "memory": "64MB"}
    job = TrainingJob.from_arguments(name="many", framework=framework, **sizes)
    workflow = {**compile_job(job, job_id="training-benchmark").workflow, "status": {}}
    pods: dict[str, PodObservation] = {}
    now = time.time()

    def step() -> float:
        begun = time.perf_counter()
        decision = reconcile(workflow, pods, now)
        took = time.perf_counter() - begun
        workflow["status"] = decision.status
        for request in [*decision.start, *decision.resources]:
            over = any(part in request.pod_name for part in ("download", "network"))
            pods[request.pod_name] = PodObservation("Succeeded", 0) if over else PodObservation("Running")
        return took

    starting = [step() for _ in range(4)]
    idle, ends, dumps = [], [], []
    learners = [name for name in pods if "-learner-" in name]
    for index in range(ROUNDS):
        idle.append(step())
        pods[learners[index]] = PodObservation("Succeeded", 0, finished_at=now)
        ends.append(step())
        begun = time.perf_counter()
        json.dumps(workflow["status"])
        dumps.append(time.perf_counter() - begun)
    quiet, busy = statistics.median(idle) * 1000, statistics.median(ends) * 1000
    print(f"{options.learners} learners: the pass that starts them {max(starting) * 1000:.0f} ms")
    print(f"a pass in which nothing happens {quiet:.1f} ms, in which one ends {busy:.1f} ms")
    print(
        f"ratio of an idle pass to json.dumps of the status: {statistics.median(idle) / statistics.median(dumps):.2f}"
    )


if __name__ == "__main__":
    main()
