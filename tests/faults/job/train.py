"""Even steps that take PACE seconds each until the file `gate` is in the job's folder, and then no time at all.

The model depends on every step, their order and the random numbers of all. Beside it the results hold MEGABYTES of
ballast and the digests of the training data. With CODE the job fails with it in the end.
"""

import hashlib
import json
import os
import sys
import time

import numpy as np

from ffdl import learner

STEPS, PACE = int(os.environ["STEPS"]), float(os.environ["PACE"])
SIZE = 64
gate = os.path.join(os.environ["JOB_STATE_DIR"], "gate")
results = os.environ["RESULT_DIR"]

with learner.session() as job:
    state = job.restore()
    print("restored at", state["step"] if state else None, flush=True)
    if state is None:
        rng = np.random.default_rng(1)
        state = {"step": 0, "w": rng.normal(size=SIZE), "momentum": np.zeros(SIZE), "rng": rng.bit_generator.state}
    rng = np.random.default_rng()
    rng.bit_generator.state = state["rng"]
    for step in range(state["step"], STEPS):
        if not os.path.exists(gate):
            time.sleep(PACE)
        target = np.sin(np.arange(SIZE) + step)
        error = state["w"] - target + 0.1 * rng.normal(size=SIZE)
        state["momentum"] = 0.9 * state["momentum"] + error
        state["w"] = state["w"] - 0.01 * state["momentum"]
        state["rng"] = rng.bit_generator.state
        state["step"] = step + 1
        job.step(step + 1, of=STEPS, state=state, loss=float(np.mean(error**2)))

np.save(os.path.join(results, "model.npy"), state["w"])
with open(os.path.join(results, "ballast"), "wb") as ballast:
    numbers = np.random.default_rng(2)
    for _ in range(int(os.environ["MEGABYTES"])):
        ballast.write(numbers.bytes(1 << 20))
data = os.environ["DATA_DIR"]
digests = {}
for name in os.listdir(data):
    with open(os.path.join(data, name), "rb") as sample:
        digests[name] = hashlib.sha256(sample.read()).hexdigest()
with open(os.path.join(results, "data.json"), "w") as seen:
    json.dump(digests, seen)
print("done", flush=True)
sys.exit(int(os.environ.get("CODE", "0")))
