"""Two processes of TensorFlow that train one linear model by MultiWorkerMirroredStrategy."""

import os

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 8)).astype(np.float32)
y = x @ np.arange(8.0, dtype=np.float32)
task = strategy.cluster_resolver.task_type, strategy.cluster_resolver.task_id
rank = 0 if task[0] == "chief" else 1 + task[1]
size = strategy.num_replicas_in_sync
mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
with strategy.scope():
    w = tf.Variable(tf.zeros(8))


@tf.function
def step() -> None:
    def in_each() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(x[mine], w) - y[mine]) ** 2)
        own = tape.gradient(loss, w)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, own)
        w.assign_sub(0.1 * total)

    strategy.run(in_each)


for _ in range(200):
    step()
model = w.numpy()
assert np.allclose(model, np.arange(8.0), atol=1e-3), model
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), model)
print("tensorflow", tf.__version__, *task, "of", size)
