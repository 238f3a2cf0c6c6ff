"""Learns to read handwritten digits with several learners, each of which takes its share of every batch.

With peers.yml they add up their gradients among themselves. With servers.yml parameter servers keep the weights, in any
of their modes. By hand it is one learner: `python together.py`.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
from digits import BATCH, HELD_OUT, MOMENTUM, RATE, accuracy_of, gradients_of, initial_state, moved, read_data

from ffdl import learner
from ffdl.learner.parameter_server import SGD


def train(job, epochs):
    (images, digits), held_out = read_data()
    batches = len(images) // BATCH
    steps = epochs * batches
    state = job.restore() or {**initial_state(1), "server": None, "rng": own_random_numbers(job.rank)}
    weights, velocity = state["weights"], state["velocity"]
    rng = np.random.default_rng()
    rng.bit_generator.state = state["rng"]
    if job.world.servers:
        named = {str(place): weight for place, weight in enumerate(weights)}
        server = job.parameter_server(named, optimizer(job), state=state["server"])
    for step in range(state["step"], steps):
        epoch, batch = divmod(step, batches)
        if batch == 0 or state["order"] is None:
            state["order"] = np.random.default_rng([2, epoch]).permutation(len(images))  # the same at all learners
        chosen = state["order"][batch * BATCH : (batch + 1) * BATCH][job.rank :: job.size]
        loss, gradients = gradients_of(weights, moved(images[chosen], rng), digits[chosen])
        if job.world.servers:
            server.step({str(place): gradient for place, gradient in enumerate(gradients)})
            state["server"] = server.state()
        else:
            for place, gradient in enumerate(gradients):
                job.overlay().all_reduce(gradient, "mean")
                velocity[place] *= MOMENTUM
                velocity[place] += gradient
                weights[place] -= np.float32(RATE) * velocity[place]
        state["rng"], state["step"] = rng.bit_generator.state, step + 1
        metrics = {"loss": loss}
        if batch == batches - 1:
            metrics["accuracy"] = accuracy_of(weights, *held_out)
            print(f"epoch {epoch + 1}/{epochs}: loss {loss:.4f}, accuracy {metrics['accuracy']:.4f}", flush=True)
        job.step(step + 1, of=steps, state=state, **metrics)
    if job.world.servers:
        server.finish()
    return weights, accuracy_of(weights, *held_out)


def optimizer(job):
    if job.world.mode != "async":
        return SGD(RATE, MOMENTUM)
    # There each learner's gradient is a step, and those of others that come between act as momentum does (Mitliagkas
    # and others, "Asynchrony begets momentum", 2016): as far as before, by steps of their own.
    return SGD(RATE / (1 - MOMENTUM) / job.size)


def own_random_numbers(rank):
    return np.random.default_rng([3, rank]).bit_generator.state


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS", 30)), help="default 30")
    epochs = parser.parse_args().epochs
    weights, accuracy = learner.run(lambda job: train(job, epochs))
    results = Path(os.environ.get("RESULT_DIR", "results"))
    results.mkdir(parents=True, exist_ok=True)
    number = os.environ.get("LEARNER_ID", "1")
    np.savez(results / f"model-{number}.npz", *weights)
    (results / f"results-{number}.json").write_text(json.dumps({"accuracy": accuracy, "held_out": HELD_OUT}) + "\n")
    print(f"accuracy on {HELD_OUT} images never trained on: {accuracy:.2%}")


if __name__ == "__main__":
    main()
