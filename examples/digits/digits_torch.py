"""Learns to read handwritten digits with PyTorch: a model as it is, trained by several learners together.

`Training` makes the process group, averages gradients, and saves all there is to save. By hand it is one learner:
`python digits_torch.py`.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from digits import HELD_OUT, read_data
from torch import nn
from torch.utils.data import TensorDataset

from ffdl import learner
from ffdl.learner.torch import Batches, Training

BATCH = 64  # of all learners together
RATE, MOMENTUM = 0.05, 0.9


def network():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def accuracy_of(net, images, digits):
    net.eval()
    with torch.no_grad():
        accuracy = float((net(images).argmax(dim=1) == digits).float().mean())
    net.train()
    return accuracy


def train(job, epochs):
    (images, digits), held_out = ([torch.from_numpy(array) for array in part] for part in read_data())
    torch.manual_seed(job.rank)  # each has dropout of its own; the weights that count are the first one's
    net = network()
    batches = Batches(len(images), BATCH, job)
    training = Training(job, net, torch.optim.SGD(net.parameters(), RATE, MOMENTUM), batches=batches)
    steps = epochs * (len(images) // BATCH)
    while training.epoch < epochs:
        for some, wanted in batches.of(TensorDataset(images, digits)):
            loss = nn.functional.cross_entropy(training.model(some), wanted)
            training.step(loss, of=steps)
        print(f"epoch {training.epoch}/{epochs}: accuracy {accuracy_of(net, *held_out):.4f}", flush=True)
    return net, accuracy_of(net, *held_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS", 30)), help="default 30")
    epochs = parser.parse_args().epochs
    net, accuracy = learner.run(lambda job: train(job, epochs))
    results = Path(os.environ.get("RESULT_DIR", "results"))
    results.mkdir(parents=True, exist_ok=True)
    number = os.environ.get("LEARNER_ID", "1")
    torch.save(net.state_dict(), results / f"model-{number}.pt")
    (results / f"results-{number}.json").write_text(json.dumps({"accuracy": accuracy, "held_out": HELD_OUT}) + "\n")
    print(f"accuracy on {HELD_OUT} images never trained on: {accuracy:.2%}")


if __name__ == "__main__":
    main()
