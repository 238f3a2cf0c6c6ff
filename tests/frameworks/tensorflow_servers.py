"""A chief, a worker and two servers of TensorFlow's ParameterServerStrategy, which train one linear model."""

import os

import numpy as np
import tensorflow as tf

cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
task = cluster.task_type, cluster.task_id
print("tensorflow", tf.__version__, *task, flush=True)
if task[0] != "chief":
    tf.distribute.Server(cluster.cluster_spec(), *task, protocol="grpc").join()  # for ever

strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 8)).astype(np.float32)
y = x @ np.arange(8.0, dtype=np.float32)
with strategy.scope():
    w, steps = tf.Variable(tf.zeros(8)), tf.Variable(0)
places = sorted(variable.device for variable in (w, steps))
assert ["/job:ps/replica:0/task:" in place for place in places] == [True, True], places
assert len(set(places)) == 2, places


@tf.function
def step() -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.linalg.matvec(x, w) - y) ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
    steps.assign_add(1)


for _ in range(200):
    coordinator.schedule(step)
coordinator.join()
model = w.numpy()
assert np.allclose(model, np.arange(8.0), atol=1e-3), model
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), model)
print(int(steps.numpy()), "steps by", cluster.cluster_spec().num_tasks("worker"), "worker, parameters at", *places)
