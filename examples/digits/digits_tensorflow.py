"""Learns to read handwritten digits with TensorFlow, by several learners in TensorFlow's own way.

MultiWorkerMirroredStrategy finds the others by TF_CONFIG, which each learner has in its environment. When one is lost
all are started again, and go on from what the first of them has saved in $CHECKPOINT_DIR after each epoch.
"""

import json
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before all else: it meets the others

from digits import HELD_OUT, read_data  # noqa: E402

LAYERS = (64, 512, 512, 10)
BATCH = 64  # of all learners together
RATE, MOMENTUM = 0.05, 0.9
EPOCHS = int(os.environ.get("EPOCHS", 30))
RANK, SIZE = int(os.environ.get("RANK", 0)), strategy.num_replicas_in_sync
CHECKPOINT = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints")) / "state.npz"

rng = np.random.default_rng(1)
with strategy.scope():
    weights = []
    for layer in range(1, len(LAYERS)):
        inputs, outputs = LAYERS[layer - 1 : layer + 1]
        weights.append(tf.Variable(rng.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype(np.float32)))
        weights.append(tf.Variable(np.zeros(outputs, np.float32)))
    velocities = [tf.Variable(tf.zeros_like(weight)) for weight in weights]


def scores_of(images):
    values = tf.reshape(images, (len(images), -1))
    for index in range(0, len(weights), 2):
        values = tf.matmul(values, weights[index]) + weights[index + 1]
        values = tf.nn.relu(values) if index + 2 < len(weights) else values
    return values


@tf.function
def step(images, digits):
    def in_each(images, digits):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(digits, scores_of(images)))
        own = tape.gradient(loss, weights)
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, own)
        for place, gradient in enumerate(gradients):
            velocities[place].assign(MOMENTUM * velocities[place] + gradient)
            weights[place].assign_sub(RATE * velocities[place])
        return loss

    return strategy.run(in_each, (images, digits))


def save(epochs):
    """All have the same: one of them saves. What is there is whole, whenever somebody is killed."""
    if RANK == 0:
        CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
        unfinished = CHECKPOINT.with_name("unfinished.npz")
        np.savez(unfinished, epochs, *[variable.numpy() for variable in weights + velocities])
        os.replace(unfinished, CHECKPOINT)


def restore():
    """The number of epochs that are done."""
    if not CHECKPOINT.exists():
        return 0
    with np.load(CHECKPOINT) as saved:
        epochs, *arrays = [saved[name] for name in saved.files]
    for place, variable in enumerate(weights + velocities):
        variable.assign(arrays[place])
    return int(epochs)


def main():
    (images, digits), (new_images, new_digits) = read_data()
    batches = len(images) // BATCH
    done = restore()
    print("beginning with epoch", done + 1, flush=True)
    for epoch in range(done, EPOCHS):
        order = np.random.default_rng([2, epoch]).permutation(len(images))
        for batch in range(batches):
            chosen = order[batch * BATCH : (batch + 1) * BATCH][RANK::SIZE]
            loss = step(tf.constant(images[chosen]), tf.constant(digits[chosen]))
        accuracy = float((scores_of(new_images).numpy().argmax(axis=1) == new_digits).mean())
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {float(loss):.4f}, accuracy {accuracy:.4f}", flush=True)
        save(epoch + 1)
    accuracy = float((scores_of(new_images).numpy().argmax(axis=1) == new_digits).mean())
    results = Path(os.environ.get("RESULT_DIR", "results"))
    results.mkdir(parents=True, exist_ok=True)
    number = os.environ.get("LEARNER_ID", "1")
    np.savez(results / f"model-{number}.npz", *[weight.numpy() for weight in weights])
    (results / f"results-{number}.json").write_text(json.dumps({"accuracy": accuracy, "held_out": HELD_OUT}) + "\n")
    print(f"accuracy on {HELD_OUT} images never trained on: {accuracy:.2%}")


if __name__ == "__main__":
    main()
