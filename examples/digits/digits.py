"""Learns to read handwritten digits: a neural network in plain NumPy, trained for about a minute on one CPU core.

Runs as it stands as a job, and by hand with `python digits.py`. Everything that the next step depends on is in `state`:
the weights, their velocity (momentum), the shuffled order of the epoch and the random generator. So a training that was
halted, or killed and started again, ends with the same model, bit for bit, as one that was left alone.
"""

import argparse
import gzip
import json
import math
import os
from pathlib import Path

import numpy as np

from ffdl import learner

DATA = Path(__file__).with_name("digits.csv.gz")  # 1797 lines: 64 pixels (8 x 8, values 0 to 16) and the digit
LAYERS = (64, 1024, 1024, 10)
HELD_OUT = 360  # images never trained on
BATCH = 64
RATE, MOMENTUM, DECAY = 0.05, 0.9, 1e-4


def read_data():
    """Images as float32 in 0..1 (n, 8, 8) and digits (n,): those to train on, then those held out."""
    with gzip.open(DATA, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    images, digits = table[:, :-1].reshape(-1, 8, 8) / 16, table[:, -1].astype(np.int64)
    return (images[HELD_OUT:], digits[HELD_OUT:]), (images[:HELD_OUT], digits[:HELD_OUT])


def initial_state(seed):
    rng = np.random.default_rng(seed)
    weights = []
    for layer in range(1, len(LAYERS)):
        inputs, outputs = LAYERS[layer - 1 : layer + 1]
        weights.append(rng.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype(np.float32))
        weights.append(np.zeros(outputs, np.float32))
    return {
        "step": 0,
        "weights": weights,
        "velocity": [np.zeros_like(array) for array in weights],
        "order": None,
        "loss": 0.0,  # summed over the epoch so far
        "rng": rng.bit_generator.state,
    }


def moved(images, rng):
    """The images, each moved by up to one pixel in each direction: the network sees no image twice the same way."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, (2, len(images), 1, 1))
    each, rows, columns = np.arange(len(images))[:, None, None], np.arange(8)[:, None], np.arange(8)
    return padded[each, rows + down, columns + right]


def forward(weights, images):
    """The activations of every layer, the last one being a score for each digit."""
    layers = [images.reshape(len(images), -1)]
    for index in range(0, len(weights), 2):
        values = layers[-1] @ weights[index] + weights[index + 1]
        layers.append(values if index + 2 == len(weights) else np.maximum(values, 0))
    return layers


def gradients_of(weights, images, digits):
    """The mean loss (cross-entropy), and its gradient for each of `weights`."""
    layers = forward(weights, images)
    scores = np.exp(layers[-1] - layers[-1].max(axis=1, keepdims=True))
    chances = scores / scores.sum(axis=1, keepdims=True)
    every = np.arange(len(digits))
    loss = -np.log(chances[every, digits] + 1e-12).mean()
    error = chances
    error[every, digits] -= 1
    error /= len(digits)
    gradients = [None] * len(weights)
    for index in range(len(weights) - 2, -1, -2):
        inputs = layers[index // 2]
        gradients[index] = inputs.T @ error + DECAY * weights[index]
        gradients[index + 1] = error.sum(axis=0)
        if index:
            error = (error @ weights[index].T) * (inputs > 0)
    return float(loss), gradients


def train(state, images, digits, rate):
    """One step of gradient descent with momentum, in place. Returns the mean loss (cross-entropy) before it."""
    loss, gradients = gradients_of(state["weights"], images, digits)
    for place, gradient in enumerate(gradients):
        velocity = state["velocity"][place]
        velocity *= MOMENTUM
        velocity -= rate * gradient
        state["weights"][place] += velocity
    return loss


def accuracy_of(weights, images, digits):
    return float((forward(weights, images)[-1].argmax(axis=1) == digits).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS", 300)), help="default 300")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    (images, digits), held_out = read_data()
    batches = -(-len(images) // BATCH)
    steps = options.epochs * batches

    with learner.session() as job:
        state = job.restore() or initial_state(options.seed)
        rng = np.random.default_rng()
        rng.bit_generator.state = state["rng"]
        for step in range(state["step"], steps):
            epoch, batch = divmod(step, batches)
            if batch == 0:
                state["order"] = rng.permutation(len(images))
                state["loss"] = 0.0
            chosen = state["order"][batch * BATCH : (batch + 1) * BATCH]
            rate = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
            metrics = {"loss": train(state, moved(images[chosen], rng), digits[chosen], rate)}
            state["loss"] += metrics["loss"] * len(chosen)
            state["rng"] = rng.bit_generator.state
            state["step"] = step + 1
            if batch == batches - 1:
                metrics["accuracy"] = accuracy_of(state["weights"], *held_out)
                loss = state["loss"] / len(images)
                place = f"epoch {epoch + 1}/{options.epochs}"
                print(f"{place}: loss {loss:.4f}, accuracy {metrics['accuracy']:.4f}", flush=True)
            job.step(step + 1, of=steps, state=state, **metrics)

    accuracy = accuracy_of(state["weights"], *held_out)
    results = Path(os.environ.get("RESULT_DIR", "results"))
    results.mkdir(parents=True, exist_ok=True)
    np.savez(results / "model.npz", *state["weights"])
    summary = {"accuracy": accuracy, "held_out": HELD_OUT, "epochs": options.epochs, "steps": steps}
    (results / "results.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"accuracy on {HELD_OUT} images never trained on: {accuracy:.2%}")


if __name__ == "__main__":
    main()
