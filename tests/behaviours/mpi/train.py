"""A script that knows MPI alone: its processes share each batch, and what they have learned lies in CHECKPOINT_DIR."""

import os
import socket
import time

import numpy as np
from mpi4py import MPI

STEPS = 120
GATED = "GATED" in os.environ
GATE = os.path.join(os.environ["JOB_STATE_DIR"], "gate")
CHECKPOINT = os.path.join(os.environ["CHECKPOINT_DIR"], "state.npz")
ROWS, COLUMNS, BATCH = 512, 64, 64

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
data = np.random.default_rng(0)
x = data.normal(size=(ROWS, COLUMNS))
y = x @ data.normal(size=COLUMNS)

saved = None
if rank == 0 and os.path.exists(CHECKPOINT):
    with np.load(CHECKPOINT) as file:
        saved = int(file["step"]), file["w"], file["momentum"]
begins, w, momentum = world.bcast(saved) or (0, np.zeros(COLUMNS), np.zeros(COLUMNS))
where = f"on {socket.gethostname()}, learner {os.environ['LEARNER_ID']}"
os.write(1, f"process {rank} of {size} {where}, begins at {begins}\n".encode())

for step in range(begins, STEPS):
    while GATED and step == STEPS - 1 and not world.bcast(os.path.exists(GATE)):
        time.sleep(0.05)
    rows = np.arange(step * BATCH, (step + 1) * BATCH)[rank::size] % ROWS
    for _ in range(10):  # real work, so that a step takes a while
        np.linalg.svd(x[rows])
    own, gradient = x[rows].T @ (x[rows] @ w - y[rows]) / BATCH, np.empty(COLUMNS)
    world.Allreduce(own, gradient)
    momentum = 0.9 * momentum + gradient
    w = w - 0.01 * momentum
    if rank == 0 and (step + 1) % 20 == 0:
        np.savez(CHECKPOINT + ".tmp.npz", step=step + 1, w=w, momentum=momentum)
        os.replace(CHECKPOINT + ".tmp.npz", CHECKPOINT)
    if rank == 0:
        print("step", step + 1, flush=True)

np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{rank}.npy"), w)
