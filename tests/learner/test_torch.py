"""The PyTorch side of the learner library, in a Python that has PyTorch and nothing else of ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.learner.conftest import Start

TORCH = "/usr/bin/python3"

pytestmark = pytest.mark.skipif(
    not Path(TORCH).exists() or subprocess.run([TORCH, "-c", "import torch"], capture_output=True).returncode != 0,
    reason="needs PyTorch in /usr/bin/python3 (apt install python3-torch)",
)

BEGIN = """
import sys
import numpy as np, torch
from ffdl import learner
from ffdl.learner import encoding
from ffdl.learner.optimizers import SGD, Adam
from ffdl.learner.torch import Batches, ServerOptimizer, Training, _plain, _tensors

class Place:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size
"""

BATCHES = """
for size in (1, 2, 4):
    all = [Batches(103, 20, Place(rank, size), seed=3) for rank in range(size)]
    for epoch in range(2):
        parts = [list(one) for one in all]
        assert len({len(one) for one in parts}) == 1 and len(parts[0]) == 5 == len(all[0])
        seen = [sample for one in parts for batch in one for sample in batch]
        assert len(set(seen)) == 100 == len(seen)
        together = [sorted(sample for one in parts for sample in one[at]) for at in range(5)]
        if size == 1:
            orders = globals().setdefault("orders", [])
            orders.append(together)
        assert together == orders[epoch], "the same batches, whoever many share them"
        for one in all:
            for _ in range(2):
                one.done()
            assert list(one) == parts[one._rank][2:], "an epoch goes on where it was"
            for _ in range(3):
                one.done()
            assert (one.epoch, one.at) == (epoch + 1, 0)
try:
    Batches(100, 10, Place(0, 3))
except ValueError as error:
    assert str(error) == "3 learners can't share batches of 10 out of 100 samples evenly"
"""

STATE = """
rng = torch.Generator().manual_seed(1)
listed = [torch.ones(2, dtype=torch.bfloat16), {1: torch.tensor(7)}]
given = {"a": torch.randn(3, 4, generator=rng), "b": listed, "c": (None, 2.5)}
encoded = encoding.encode({"state": _plain(given)})
back = _tensors(encoding.decode(__import__("json").loads(encoded.document()), encoded.contents)["state"])
assert torch.equal(back["a"], given["a"]) and back["b"][0].dtype == torch.bfloat16
assert torch.equal(back["b"][0], given["b"][0]) and torch.equal(back["b"][1][1], given["b"][1][1])
assert back["c"] == (None, 2.5)
"""

SERVED = """
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))

x, y = torch.randn(32, 5), torch.randn(32, 1)
ways = [
    (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), SGD(0.1, 0.9)),
    (lambda p: torch.optim.Adam(p, 0.01), Adam(0.01)),
]
with learner.session() as job:
    try:
        ServerOptimizer(job, net().bfloat16(), SGD(0.1))
    except TypeError as error:
        assert str(error) == "parameter servers keep float16, float32 or float64, and no torch.bfloat16: net.float()"
    for theirs, ours in ways:
        one, two = net(), net()
        first, second = theirs(one.parameters()), ServerOptimizer(job, two, ours)
        for _ in range(20):
            for model, optimizer in ((one, first), (two, second)):
                optimizer.zero_grad(set_to_none=ours is ways[0][1])
                torch.nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
        second.finish()
        for a, b in zip(one.parameters(), two.parameters()):
            assert torch.allclose(a, b, atol=1e-5), (a, b)
"""

SCHEDULED = """
S = torch.optim.lr_scheduler
ways = [
    lambda opt: S.OneCycleLR(opt, 0.1, total_steps=20),
    lambda opt: S.CyclicLR(opt, 0.01, 0.1, step_size_up=3),
    lambda opt: S.SequentialLR(opt, [S.ConstantLR(opt, 0.1, 4), S.ExponentialLR(opt, 0.9)], [4]),
    lambda opt: S.LambdaLR(opt, lambda step: 0.9**step),
]

def parts(way):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    return net, optimizer, way and way(optimizer)

class Job:
    size, saved = 1, None
    def restore(self):
        encoded = self.saved and encoding.encode(self.saved)
        return encoded and encoding.decode(__import__("json").loads(encoded.document()), encoded.contents)
    def step(self, *_, **__):
        pass

for way in ways:
    found = []
    for halted in (False, True):
        job = Job()
        for steps in ((5, 10) if halted else (10,)):
            net, optimizer, scheduler = parts(way)
            training = Training(job, net, optimizer, scheduler=scheduler)
            while training.steps < steps:
                training.step(training.model(torch.ones(2, 3)).sum())
            job.saved = training.state()
        found.append((net.weight.detach().clone(), optimizer.param_groups[0]["lr"]))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1], found

net, optimizer, _ = parts(None)
for wrong, why in (
    (dict(optimizer=torch.optim.LBFGS(net.parameters())), "Training has no place for LBFGS: it computes"),
    (dict(scheduler=S.ReduceLROnPlateau(optimizer)), "Training has no place for ReduceLROnPlateau: it follows"),
    (dict(optimizer=ServerOptimizer.__new__(ServerOptimizer)), "Training is for peers: call zero_grad and step"),
):
    try:
        Training(Job(), net, **{"optimizer": optimizer, **wrong})
    except TypeError as error:
        assert str(error).startswith(why), error
    else:
        raise SystemExit(f"not refused: {why}")
"""

GROUP = """
import os, signal, socket, time
from ffdl.learner.overlay import Overlay
from ffdl.learner.rendezvous import Place
from ffdl.learner.torch import process_group
from ffdl.learner.world import World

listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
addresses = [listener.getsockname() for listener in listeners]
child = os.fork()
rank = 0 if child else 1

class Job:
    rank, size, world = rank, 2, World(addresses=tuple(addresses))
    def overlay(self):
        return Overlay(Place(rank, 1, b"key"), addresses, listeners[rank])

process_group(Job(), "gloo", timeout=5.0)
torch.distributed.all_reduce(torch.ones(2))
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)  # as a node that dies: its connections stay
try:
    torch.distributed.all_reduce(torch.ones(2))
except RuntimeError as error:
    print(error)
else:
    raise SystemExit("it did not wait for the other")
finally:
    os.kill(child, signal.SIGKILL)
"""

FROZEN = """
import os, socket
from ffdl.learner.overlay import Overlay
from ffdl.learner.parameter_server import ParameterServer
from ffdl.learner.rendezvous import Place
from ffdl.learner.world import World

listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
addresses = [listener.getsockname() for listener in listeners]
reading, writing = os.pipe()
rank = 0 if os.fork() else 1

class Job:
    size, world = 2, World(addresses=tuple(addresses), mode="sync")
    def __init__(self):
        self.place = Place(rank, 1, b"key")
        self.there = Overlay(self.place, addresses, listeners[rank])
    def overlay(self):
        return self.there
    def parameter_server(self, own, optimizer):
        return ParameterServer(self.place, (), own, optimizer)

torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1).bfloat16())
net[0].bias.requires_grad_(False)
for each in net[2].parameters():
    each.requires_grad_(False)
net[1].running_mean += rank
net[1].num_batches_tracked += rank
net.register_buffer("mask", torch.tensor([rank == 0, True]))
ServerOptimizer(Job(), net, SGD(0.1))
kept = [each for each in (*net.parameters(), *net.buffers()) if not each.requires_grad]
assert len(kept) == 7
said = repr([each.tolist() for each in kept]).encode()
if rank == 1:
    os.write(writing, said)
else:
    assert os.read(reading, 1 << 16) == said
    assert net[1].num_batches_tracked == 0 and net.mask.all()
"""

ALONE = """
def run():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    x = torch.randn(64, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    with learner.session() as job:
        batches = Batches(64, 16, job)
        training = Training(job, net, torch.optim.Adam(net.parameters(), 0.01), batches=batches)
        print("from", training.steps)
        while training.epoch < int(sys.argv[1]):
            for inputs, wanted in batches.of(data):
                training.step(torch.nn.functional.mse_loss(training.model(inputs), wanted))
                if training.steps == int(sys.argv[2]):
                    job.save(training.state)
                    return
    print("model", float(sum(p.detach().double().abs().sum() for p in net.parameters())).hex())
run()
"""


def test_a_peer_that_is_silent_is_not_waited_for_for_ever(start: Start, library: Path) -> None:
    """A node that dies resets no connection, and gloo itself would wait for half an hour."""
    process = start("", command=[TORCH, "-c", BEGIN + GROUP], env={"PYTHONPATH": str(library)})
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "Timed out" in output


@pytest.mark.parametrize(
    "script",
    [BATCHES, STATE, SERVED, SCHEDULED, FROZEN],
    ids=["batches", "state", "optimizer at servers", "schedulers", "what is not trained"],
)
def test_parts(start: Start, library: Path, script: str) -> None:
    process = start("", command=[TORCH, "-c", BEGIN + script], env={"PYTHONPATH": str(library)})
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 0, errors


def test_all_of_a_training_is_in_its_checkpoint(start: Start, library: Path, tmp_path: Path) -> None:
    """By hand, without a job: broken off in the middle of an epoch and begun again it ends with the same model."""

    def run(folder: str, *arguments: str) -> str:
        env = {"PYTHONPATH": str(library), "CHECKPOINT_DIR": str(tmp_path / folder)}
        process = start("", *arguments, command=[TORCH, "-c", BEGIN + ALONE], env=env)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output

    whole = run("whole", "3", "-1").splitlines()
    assert run("parts", "3", "6") == "from 0\n"
    assert run("parts", "3", "-1").splitlines() == ["from 6", whole[1]]
