"""How learners that train one model by way of parameter servers agree on its parameters: the `mode` of a job.

Each rule works on any part of the parameters by itself, so that servers share them and go through them block by block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from .contract import LOCKSTEP, MODES
from .optimizers import Optimizer, from_description, new_slots, wide

SYNC, ASYNC, EASGD, AVERAGE = MODES
GRADIENTS = (SYNC, ASYNC)  # modes in which learners send gradients, and servers apply the optimizer
PULL = 0.9  # of elastic averaging, over all learners: the paper's


class Update(NamedTuple):
    """One step of the parameters, which goes through them part by part."""

    number: int  # from 1
    optimizer: Optimizer


class Solver:
    """A server's part of the parameters, `values` (n,), and what `mode` makes of what learners send.

    sync     w = optimizer(w, mean of all learners' gradients): large-batch SGD (Chen et al., "Revisiting distributed
             synchronous SGD", 2016, without backup workers). The mean is summed in the order of ranks.
    async    w = optimizer(w, one learner's gradient), as each comes: Downpour SGD (Dean et al., "Large scale
             distributed deep networks", 2012).
    easgd    x the learner's own parameters: d = a (x - w); w = w + d; x = x - d: asynchronous elastic averaging, a =
             0.9 / learners (Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", 2015).
    average  w = mean of all learners' parameters, which all take: model averaging (McDonald, Hall and Mann,
             "Distributed training strategies for the structured perceptron", 2010).
    """

    def __init__(self, mode: str, optimizer: Optimizer, values: np.ndarray, elasticity: Optional[float] = None) -> None:
        self.mode, self.optimizer, self.values, self.elasticity = mode, optimizer, values, elasticity
        self.slots: List[np.ndarray] = new_slots(optimizer, values) if mode in GRADIENTS else []
        self.updates = 0  # that have begun

    def begin(self, rate: Optional[float]) -> Update:
        """The next update; `rate` is its learning rate, if not the optimizer's."""
        self.updates += 1
        return Update(self.updates, self.optimizer if rate is None else replace(self.optimizer, lr=rate))

    def apply(self, update: Update, part: slice, sent: np.ndarray, learners: int) -> np.ndarray:
        """What whoever has `sent` it is to have for `part`. In lockstep `sent` is the sum over all `learners`.

        `sent` is used up; the result may be part of `values`.
        """
        values = self.values[part]
        if self.mode == EASGD:
            towards = sent - values
            np.multiply(towards, PULL / learners if self.elasticity is None else self.elasticity, out=towards)
            np.add(values, towards, out=values)
            np.subtract(sent, towards, out=sent)
            return sent
        if self.mode in LOCKSTEP:
            np.divide(sent, learners, out=sent)
        if self.mode == AVERAGE:
            values[:] = sent
        else:
            update.optimizer.update(values, sent, [slot[part] for slot in self.slots], update.number)
        return values

    def state(self) -> Dict[str, Any]:
        """What there is to save."""
        return {"values": self.values, "slots": list(self.slots), "updates": self.updates}

    def restore(self, state: Dict[str, Any]) -> None:
        """Goes back to a saved state. Raises ValueError where it is not one of these parameters."""
        values = np.asarray(state["values"])
        if values.shape != self.values.shape or values.dtype != self.values.dtype:
            has, wants = _words(values), _words(self.values)
            raise ValueError(f"the saved parameters of this server are {has}, the learners' {wants}")
        self.values[:], self.updates = values, int(state["updates"])
        if len(state["slots"]) == len(self.slots):  # else it is another optimizer's, which begins anew
            kind = wide(self.values)  # an earlier version has saved those of float16 as float16
            self.slots = [np.asarray(slot, kind) for slot in state["slots"]]


def check(elasticity: Any, staleness: Any, learners: int) -> None:
    """Raises ValueError for what none of the modes can have.

    learners * elasticity is the paper's beta = p alpha, by which the servers' parameters move towards the mean of all
    learners': up to 1 they are a moving average of it, beyond that they overshoot and may diverge.
    """
    if staleness is not None and (type(staleness) is not int or staleness < 0):
        raise ValueError(f"staleness is a whole number of steps, 0 or more, not {staleness!r:.50}")
    if elasticity is None:
        return
    if isinstance(elasticity, bool) or not isinstance(elasticity, (int, float)) or not 0 < learners * elasticity <= 1:
        most = f"1 / learners = {1 / learners:g}"
        raise ValueError(f"elasticity is a number above 0 and up to {most}, not {elasticity!r:.50}")


def solver(about: Dict[str, Any], values: np.ndarray) -> Solver:
    """The one that learners have asked for. Raises ValueError."""
    mode, elasticity = about.get("mode"), about.get("elasticity")
    if mode not in MODES:
        raise ValueError(f"there is no mode {mode!r:.50}")
    return Solver(mode, from_description(dict(about.get("optimizer") or {})), values, elasticity)


def _words(values: np.ndarray) -> str:
    return f"{values.size} of {values.dtype}"
