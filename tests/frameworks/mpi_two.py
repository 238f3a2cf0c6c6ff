"""Two processes of MPI, one in each learner, that train one linear model by Allreduce."""

import os
import socket

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
assert size == 2, size
assert len(set(world.allgather(socket.gethostname()))) == 2
rng = np.random.default_rng(0)
x, target = rng.normal(size=(64, 8)), np.arange(8.0)
mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
w, gradient = np.zeros(8), np.empty(8)
for _ in range(200):
    error = x[mine] @ (w - target)
    world.Allreduce(2 * x[mine].T @ error / len(error), gradient)
    w -= 0.1 * gradient / size
assert np.allclose(w, target, atol=1e-3), w
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), w)
print("mpi", MPI.Get_library_version().split("\n")[0], "rank", rank, "of", size, "on", socket.gethostname())
