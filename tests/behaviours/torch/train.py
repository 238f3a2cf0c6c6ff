"""A model that is not linear, trained by PyTorch: shuffling, dropout, momentum and a schedule of learning rates."""

import os

import numpy as np
import torch
from torch.utils.data import TensorDataset

from ffdl import learner
from ffdl.learner.torch import Batches, Training

STEPS = 120
GATED = "GATED" in os.environ  # the last step waits for a gate to be opened: until then the job is at work
GATE = os.path.join(os.environ["JOB_STATE_DIR"], "gate")
rng = np.random.default_rng(0)
x = torch.from_numpy(rng.normal(size=(512, 16)).astype(np.float32))
data = TensorDataset(x, torch.sin(x.sum(dim=1, keepdim=True)))


def train(job: learner.Session) -> np.ndarray:
    torch.manual_seed(1 + job.rank)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32),
        torch.nn.BatchNorm1d(32),
        torch.nn.Dropout(0.1),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 1),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.5)
    batches = Batches(len(data), 64, job)
    training = Training(job, net, optimizer, batches=batches, scheduler=scheduler)
    print("generation", job.generation, "begins at", training.steps, flush=True)
    while training.steps < STEPS:
        for inputs, wanted in batches.of(data):
            while GATED and training.steps == STEPS - 1:
                opened = np.array([os.path.exists(GATE)], np.int32)
                job.overlay().all_reduce(opened, "max")
                if opened[0]:
                    break
            training.step(torch.nn.functional.mse_loss(training.model(inputs), wanted), of=STEPS)
    return np.concatenate([each.detach().numpy().reshape(-1) for each in net.parameters()])


model = learner.run(train)
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), model)
