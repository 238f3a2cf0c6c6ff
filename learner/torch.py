"""PyTorch: data-parallel training of a model as it is, and all of its state in one call. Needs PyTorch >= 1.13.

from ffdl import learner
from ffdl.learner.torch import Training

def train(job):
    model = Net()
    training = Training(job, model, torch.optim.Adam(model.parameters()), batches=Batches(len(data), 64, job))
    while training.epoch < EPOCHS:
        for x, y in training.batches.of(data):
            loss = loss_of(training.model(x), y)
            training.step(loss)

learner.run(train)
"""

from __future__ import annotations

import inspect
import random
import socket
from datetime import timedelta
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

import numpy as np
import torch
import torch.distributed as dist

from .contract import HEARTBEAT_TIMEOUT, RECONNECT_WINDOW
from .encoding import encode
from .optimizers import Optimizer
from .session import Session

__all__ = ["Batches", "ServerOptimizer", "Training", "process_group"]

_AS = {torch.bfloat16: torch.int16}  # types that NumPy has not, and one of the same size that it has

COLLECTIVE_WITHIN = 20 * (HEARTBEAT_TIMEOUT + RECONNECT_WINDOW)  # seconds: a loss is known long before


def process_group(job: Session, backend: Optional[str] = None, timeout: float = COLLECTIVE_WITHIN) -> None:
    """Makes the default process group that of this world's learners, whatever it was before.

    `backend`: nccl where there are GPUs, else gloo. Collectives of one whose peer is gone raise RuntimeError, at the
    latest after `timeout` seconds: a node that dies resets no connection. That bounds any wait for a slow peer, too:
    where one works for longer by itself, between two steps, it has to be more.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    place = np.zeros(1, np.int64)
    if job.rank == 0:
        with socket.socket(socket.AF_INET6 if ":" in _host(job) else socket.AF_INET) as free:
            free.bind(("", 0))  # of all addresses: PyTorch listens at all of them
            place[0] = free.getsockname()[1]
    job.overlay().broadcast(place)
    host = f"[{_host(job)}]" if ":" in _host(job) else _host(job)
    backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    meets, within = f"tcp://{host}:{place[0]}", timedelta(seconds=timeout)
    dist.init_process_group(backend, init_method=meets, rank=job.rank, world_size=job.size, timeout=within)


def _host(job: Session) -> str:
    """Of the first rank. One alone needs none but its own."""
    return job.world.addresses[0][0] if job.world.addresses else "127.0.0.1"


class Batches:
    """Of each epoch's permutation of `length` samples this learner's part, in batches: a DataLoader's `batch_sampler`.

    All learners together take `batch_size` samples a step. The last batch of an epoch that is not full is left out.
    """

    def __init__(self, length: int, batch_size: int, job: Session, seed: int = 0) -> None:
        if batch_size % job.size or not 0 < batch_size <= length:
            raise ValueError(f"{job.size} learners can't share batches of {batch_size} out of {length} samples evenly")
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.epoch = self.at = 0  # batches of the epoch that are done
        self._rank, self._size = job.rank, job.size

    def __len__(self) -> int:
        return self.length // self.batch_size - self.at

    def __iter__(self) -> Iterator[List[int]]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.length)
        for batch in range(self.at, self.length // self.batch_size):
            begin = batch * self.batch_size
            yield order[begin : begin + self.batch_size][self._rank :: self._size].tolist()

    def of(self, data: Any, **options: Any) -> Any:
        """A DataLoader of the batches of `data` that are left of this epoch. `options` are the DataLoader's.

        It draws no random numbers from PyTorch's own generator: an epoch that is begun a second time does not either.
        """
        generator = torch.Generator().manual_seed(hash((self.seed, self.epoch, self._rank)) & (1 << 62) - 1)
        return torch.utils.data.DataLoader(data, batch_sampler=self, generator=generator, **options)

    def done(self) -> None:
        """One more batch is trained. (A DataLoader is ahead of that.)"""
        self.at += 1
        if self.at == self.length // self.batch_size:
            self.epoch, self.at = self.epoch + 1, 0


class Training:
    """`net`, trained by all learners of the job's world together; `model` is what to call, with gradients averaged.

    It begins where all have been: with the last checkpoint's model, optimizer, scheduler, batches and random numbers
    (PyTorch's, NumPy's and Python's), or, without one, with the first rank's model.
    """

    def __init__(
        self,
        job: Session,
        net: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        batches: Optional[Batches] = None,
        scheduler: Any = None,
        backend: Optional[str] = None,
        timeout: float = COLLECTIVE_WITHIN,
    ) -> None:
        """`scheduler` takes a step after each of the optimizer's; `timeout` as of `process_group`.

        Raises PeerLost; TypeError for an optimizer or scheduler that `step` can't call, or a checkpoint can't hold.
        """
        if isinstance(optimizer, ServerOptimizer):
            raise TypeError("Training is for peers: call zero_grad and step of a ServerOptimizer yourself")
        _check_step(optimizer, "computes the loss more than once a step; take another")
        if scheduler is not None:
            _check_step(scheduler, "follows a measured value, which learners differ in; take one that counts steps")
        self.job, self.net, self.optimizer, self.batches, self.scheduler = job, net, optimizer, batches, scheduler
        self.steps = 0
        state = job.restore()
        if state is not None:
            self._restore(state)
        encode({"optimizer": _plain(optimizer.state_dict()), "scheduler": self._scheduled()})  # an error now, if ever
        self.model: Callable[..., Any] = net
        if job.size > 1:
            process_group(job, backend, timeout)
            self.model = torch.nn.parallel.DistributedDataParallel(net)  # the first rank's parameters are all ranks'

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self.batches.epoch if self.batches is not None else 0

    def step(self, loss: Any, of: Optional[int] = None, **metrics: Any) -> None:
        """Goes back from `loss`, and one step on with the mean of all learners' gradients. Then as `job.step`."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.batches is not None:
            self.batches.done()
        self.steps += 1
        self.job.step(self.steps, of=of, state=self.state, loss=float(loss.detach()), **metrics)

    def state(self) -> Dict[str, Any]:
        """All that there is to save, as a checkpoint holds it. Tensors on CPUs are not copied."""
        found: Dict[str, Any] = {
            "steps": self.steps,
            "net": _plain(self.net.state_dict()),
            "optimizer": _plain(self.optimizer.state_dict()),
            "torch": torch.get_rng_state().numpy(),
            "cuda": [state.numpy() for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
            "numpy": _plain(np.random.get_state()),
            "python": random.getstate(),
        }
        if self.scheduler is not None:
            found["scheduler"] = self._scheduled()
        if self.batches is not None:
            found["batches"] = [self.batches.epoch, self.batches.at]
        return found

    def _scheduled(self) -> Dict[str, Any]:
        """Without functions, which are in some versions' states, and which its constructor makes again."""
        kept = self.scheduler.state_dict().items() if self.scheduler is not None else ()
        return {name: _plain(value) for name, value in kept if not callable(value)}

    def _restore(self, state: Dict[str, Any]) -> None:
        self.steps = state["steps"]
        self.net.load_state_dict(_tensors(state["net"]))
        self.optimizer.load_state_dict(_tensors(state["optimizer"]))
        torch.set_rng_state(torch.from_numpy(np.array(state["torch"])))
        if state["cuda"]:
            torch.cuda.set_rng_state_all([torch.from_numpy(np.array(one)) for one in state["cuda"]])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        if self.scheduler is not None and "scheduler" in state:
            self.scheduler.load_state_dict(_tensors(state["scheduler"]))
        if self.batches is not None and "batches" in state:
            self.batches.epoch, self.batches.at = state["batches"]


class ServerOptimizer:
    """An optimizer at the job's parameter servers, for the parameters of `net`: `zero_grad`, `step` as of PyTorch's."""

    def __init__(self, job: Session, net: torch.nn.Module, optimizer: Optimizer, **options: Any) -> None:
        """`optimizer` and `options` as of `Session.parameter_server`. In the modes sync and average what is not
        trained, frozen parameters and buffers, becomes what it is at the first learner, once.

        Raises PeerLost, Mismatch; TypeError for a net of numbers that servers don't keep.
        """
        self._trained = {name: each for name, each in net.named_parameters() if each.requires_grad}
        if strange := [each.dtype for each in self._trained.values() if each.dtype in _AS]:
            raise TypeError(f"parameter servers keep float16, float32 or float64, and no {strange[0]}: net.float()")
        self._own = {name: _on_cpu(each) for name, each in self._trained.items()}
        self.server = job.parameter_server(self._own, optimizer, **options)
        self._take()
        if job.world.together:
            _as_first(job, [each for each in (*net.parameters(), *net.buffers()) if not each.requires_grad])

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in self._trained.values():
            if set_to_none or each.grad is None:
                each.grad = None
            else:
                each.grad.zero_()

    def step(self, lr: Optional[float] = None) -> None:
        """One step with the gradients that there are (none counts as 0), by the job's mode."""
        given = {
            name: np.zeros_like(self._own[name]) if each.grad is None else _on_cpu(each.grad)
            for name, each in self._trained.items()
        }
        self.server.step(given, lr)
        self._take()

    def finish(self) -> None:
        """After the last step: the net becomes what all learners have trained. As of `ParameterServer.finish`."""
        self.server.finish()
        self._take()

    def _take(self) -> None:
        with torch.no_grad():
            for name, each in self._trained.items():
                if each.data_ptr() != self._own[name].ctypes.data:  # else it is the very memory
                    each.copy_(torch.from_numpy(self._own[name]))


def _check_step(what: Any, because: str) -> None:
    """Raises TypeError where its `step` is not to be called without arguments."""
    _, *parameters = inspect.signature(type(what).step).parameters.values()
    if any(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters):
        raise TypeError(f"Training has no place for {type(what).__name__}: it {because}")


def _as_first(job: Session, tensors: Iterable[torch.Tensor]) -> None:
    """They become what they are at the first learner."""
    with torch.no_grad():
        for tensor in tensors:
            own = tensor.detach().cpu().contiguous()
            job.overlay().broadcast(own.reshape(-1).view(torch.uint8).numpy())
            tensor.copy_(own)


def _on_cpu(tensor: torch.Tensor) -> np.ndarray:
    """Its own memory, if it is on a CPU and of one piece."""
    return np.asarray(tensor.detach().contiguous().cpu().numpy())


def _plain(value: Any) -> Any:
    """Tensors as arrays, wherever in `value` they are; a dict of its own for each of a type that NumPy has not."""
    if isinstance(value, torch.Tensor):
        own = value.detach().cpu()
        if own.dtype in _AS:
            return {"__tensor__": str(own.dtype), "as": own.contiguous().view(_AS[own.dtype]).numpy()}
        return {"__tensor__": "", "as": own.numpy()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value


def _tensors(value: Any) -> Any:
    """The opposite of `_plain`."""
    if isinstance(value, dict) and "__tensor__" in value:
        found = torch.from_numpy(np.array(value["as"]))
        known = {str(kind): kind for kind in _AS}
        return found.view(known[value["__tensor__"]]) if value["__tensor__"] else found
    if isinstance(value, dict):
        return {key: _tensors(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(item) for item in value)
    return value
