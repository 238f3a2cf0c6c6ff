"""A small job with all that makes resuming hard: shuffling, momentum, an RNG; some milliseconds of work a step."""

import os
import time

import numpy as np

from ffdl import learner

STEPS = int(os.environ.get("STEPS", "150"))
BALLAST = int(os.environ.get("BALLAST", "0"))  # MiB of results for those who want storing them to take a while
PAUSE = float(os.environ.get("PAUSE", "0"))  # seconds a step waits, for those who want to do something meanwhile
GATED = "GATED" in os.environ  # the last step waits for a gate to be opened: until then the job is at work
GATE = os.path.join(os.environ["JOB_STATE_DIR"], "gate")
ROWS, COLUMNS, BATCH = 512, 64, 64

data = np.random.default_rng(0)
x = data.normal(size=(ROWS, COLUMNS))
y = x @ data.normal(size=COLUMNS)

with learner.session() as job:
    state = job.restore()
    print("restored at", state["step"] if state else None, flush=True)
    if state is None:
        rng = np.random.default_rng(1)
        state = {
            "step": 0,
            "w": rng.normal(size=COLUMNS),
            "momentum": np.zeros(COLUMNS),
            "order": rng.permutation(ROWS),
            "rng": rng.bit_generator.state,
        }
    rng = np.random.default_rng()
    rng.bit_generator.state = state["rng"]
    for step in range(state["step"], STEPS):
        while GATED and step == STEPS - 1 and not os.path.exists(GATE):
            time.sleep(0.05)
            job.step(step, of=STEPS, state=state)  # where a halt is heard of
        at = step * BATCH % ROWS
        if at == 0:
            state["order"] = rng.permutation(ROWS)
        rows = state["order"][at : at + BATCH]
        for _ in range(80):  # real work, so that a step takes a while
            error = x[rows] @ state["w"] - y[rows]
            gradient = x[rows].T @ error / BATCH
            np.linalg.svd(x[rows])
        state["momentum"] = 0.9 * state["momentum"] + gradient + 0.01 * rng.normal(size=COLUMNS)
        state["w"] = state["w"] - 0.01 * state["momentum"]
        state["rng"] = rng.bit_generator.state
        state["step"] = step + 1
        time.sleep(PAUSE)
        job.step(step + 1, of=STEPS, state=state, loss=float(np.mean(error**2)))

if BALLAST:
    with open(os.path.join(os.environ["RESULT_DIR"], "ballast"), "wb") as ballast:
        for _ in range(BALLAST):
            ballast.write(os.urandom(1 << 20))
np.save(os.path.join(os.environ["RESULT_DIR"], "model.npy"), state["w"])
print("done", flush=True)
