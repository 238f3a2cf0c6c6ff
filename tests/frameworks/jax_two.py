"""Two processes of JAX that train one linear model, each with its half of the data."""

import os

import jax

processes, process = (int(os.environ[name]) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
jax.distributed.initialize(num_processes=processes, process_id=process)  # it reads JAX_COORDINATOR_ADDRESS itself
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

rng = np.random.default_rng(0)
x, target = rng.normal(size=(64, 8)), np.arange(8.0)
rank, size = jax.process_index(), jax.process_count()
mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
gradient = jax.jit(jax.grad(lambda w, x, y: jnp.mean((x @ w - y) ** 2)))
w = jnp.zeros(8)
for _ in range(200):
    own = gradient(w, x[mine], x[mine] @ target)
    w = w - 0.1 * multihost_utils.process_allgather(own).mean(axis=0)
assert np.allclose(w, target, atol=1e-3), w
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), np.asarray(w))
print("jax", jax.__version__, "process", rank, "of", size)
