"""The small job's likeness for learners that train together, as peers or with parameter servers in any of their modes.

Each has its share of every batch, and noise of its own in its gradients.
"""

import os
import time

import numpy as np

from ffdl import learner
from ffdl.learner.parameter_server import SGD

STEPS = int(os.environ.get("STEPS", "120"))
PAUSE = float(os.environ.get("PAUSE", "0"))  # seconds a step waits
GATED = "GATED" in os.environ  # the last step waits for a gate to be opened: until then the job is at work
GATE = os.path.join(os.environ["JOB_STATE_DIR"], "gate")
LEAVES = "LEAVES" in os.environ  # without waiting for what all have trained
FAILS_AT = int(os.environ.get("FAILS_AT", "0"))  # the step at which learner 2 exits with code 3
ROWS, COLUMNS, BATCH = 512, 64, 64
RATE, MOMENTUM = 0.01, 0.9
HALF = COLUMNS // 2

data = np.random.default_rng(0)
x = data.normal(size=(ROWS, COLUMNS))
y = x @ data.normal(size=COLUMNS)


def train(job: learner.Session) -> np.ndarray:
    state = job.restore()
    print("generation", job.generation, "begins at", state["step"] if state else 0, flush=True)
    if state is None:
        rng = np.random.default_rng([1, job.rank])
        state = {"step": 0, "w": np.zeros(COLUMNS), "velocity": np.zeros(COLUMNS), "rng": rng.bit_generator.state}
        state |= {"order": np.random.default_rng(2).permutation(ROWS), "own": None}
    rng = np.random.default_rng()
    rng.bit_generator.state = state["rng"]
    w, velocity, server = state["w"], state["velocity"], None
    if job.world.servers:
        server = job.parameter_server(w, SGD(RATE, MOMENTUM), every=3, state=state["own"])
    else:
        large = {"large": np.empty(1 << 18)}  # a bucket of its own
        means = job.overlay().buckets({**large, "upper": w[:HALF], "lower": w[HALF:]})
    for step in range(state["step"], STEPS):
        while GATED and step == STEPS - 1:
            opened = np.array([os.path.exists(GATE)], np.int32)
            if server is None or server.mode in ("sync", "average"):
                job.overlay().all_reduce(opened, "max")
            if opened[0]:
                break
            time.sleep(0.05)
            job.step(step, of=STEPS, state=state)  # where a halt is heard of
        at = step * BATCH % ROWS
        if at == 0:
            state["order"] = np.random.default_rng([3, step]).permutation(ROWS)
        rows = state["order"][at : at + BATCH][job.rank :: job.size]
        for _ in range(20):  # real work, so that a step takes a while
            np.linalg.svd(x[rows])
        error = x[rows] @ w - y[rows]
        gradient = x[rows].T @ error / len(rows) + 0.01 * rng.normal(size=COLUMNS)
        if server is not None:
            server.step(gradient)
            state["own"] = server.state()
        else:
            for name, part in (("lower", gradient[HALF:]), ("upper", gradient[:HALF])):
                means[name] = part
                means.ready(name)
            means.ready()
            means.wait()
            velocity *= MOMENTUM
            velocity += np.concatenate([means["upper"], means["lower"]])
            w -= RATE * velocity
        state["rng"] = rng.bit_generator.state
        state["step"] = step + 1
        time.sleep(PAUSE)
        if step + 1 == FAILS_AT and job.rank == 1:
            raise SystemExit(3)
        job.step(step + 1, of=STEPS, state=state, loss=float(np.mean(error**2)))
    if server is not None and not LEAVES:
        server.finish()
    return w


model = learner.run(train)
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), model)
