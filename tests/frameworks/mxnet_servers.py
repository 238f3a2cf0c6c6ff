"""Two workers, two servers and a scheduler of MXNet, which train one linear model by its key-value store."""

import os

import mxnet as mx  # at servers and the scheduler this line is all: it serves until the workers are done
import numpy as np

store = mx.kv.create("dist_sync")
rank, size = store.rank, store.num_workers
assert size == 2, size
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 8)).astype(np.float32)
target = np.arange(8.0, dtype=np.float32)
mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, rescale_grad=1 / size))
store.init(0, mx.nd.zeros(8))
w = mx.nd.zeros(8)
for _ in range(200):
    error = x[mine] @ (w.asnumpy() - target)
    store.push(0, mx.nd.array(2 * x[mine].T @ error / len(error)))
    store.pull(0, out=w)
model = w.asnumpy()
assert np.allclose(model, target, atol=1e-3), model
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), model)
print("mxnet", mx.__version__, "worker", rank, "of", size)
