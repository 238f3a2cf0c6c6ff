"""What gradients do to parameters, element by element: at parameter servers, and at learners between two exchanges."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Dict, List, Sequence, Type, Union

import numpy as np


@dataclass(frozen=True)
class SGD:
    """Gradient descent: v = momentum * v + g; w = w - lr * v.

    The momentum is Polyak's ("Some methods of speeding up the convergence of iteration methods", 1964), with the
    learning rate outside of v, as most frameworks have it.
    """

    lr: float
    momentum: float = 0.0

    kind: ClassVar[str] = "sgd"

    @property
    def slots(self) -> int:
        """Arrays of the parameters' shape that go with them."""
        return 1 if self.momentum else 0

    def update(self, values: np.ndarray, gradient: np.ndarray, slots: Sequence[np.ndarray], number: int) -> None:
        """`values`, and `slots`, after update `number` (from 1). `gradient`, of type `wide(values)`, is used up."""
        if self.momentum:
            (velocity,) = slots
            np.multiply(velocity, self.momentum, out=velocity)
            np.add(velocity, gradient, out=velocity)
            np.multiply(velocity, self.lr, out=gradient)
        else:
            np.multiply(gradient, self.lr, out=gradient)
        np.subtract(values, gradient, out=values)


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    kind: ClassVar[str] = "adam"
    slots: ClassVar[int] = 2

    def update(self, values: np.ndarray, gradient: np.ndarray, slots: Sequence[np.ndarray], number: int) -> None:
        """As `SGD.update`."""
        mean, square = slots
        np.multiply(mean, self.beta1, out=mean)
        np.add(mean, (1 - self.beta1) * gradient, out=mean)
        np.multiply(square, self.beta2, out=square)
        np.multiply(gradient, gradient, out=gradient)
        np.multiply(gradient, 1 - self.beta2, out=gradient)
        np.add(square, gradient, out=square)
        np.divide(square, 1 - self.beta2**number, out=gradient)
        np.sqrt(gradient, out=gradient)
        np.add(gradient, self.epsilon, out=gradient)
        np.divide(mean, gradient, out=gradient)
        np.multiply(gradient, self.lr / (1 - self.beta1**number), out=gradient)
        np.subtract(values, gradient, out=values)


Optimizer = Union[SGD, Adam]
_KINDS: Dict[str, Type[Any]] = {kind.kind: kind for kind in (SGD, Adam)}


def described(optimizer: Optimizer) -> Dict[str, Any]:
    """`optimizer` as plain values."""
    return {"kind": optimizer.kind, **asdict(optimizer)}


def from_description(values: Dict[str, Any]) -> Optimizer:
    """The optimizer that was described. Raises ValueError."""
    kind = _KINDS.get(str(values.get("kind")))
    numbers = {name: value for name, value in values.items() if name != "kind"}
    if kind is None or not all(isinstance(each, (int, float)) and math.isfinite(each) for each in numbers.values()):
        raise ValueError(f"there is no optimizer {values!r:.200}")
    try:
        optimizer: Optimizer = kind(**numbers)
    except TypeError as error:
        raise ValueError(f"there is no optimizer {values!r:.200}: {error}") from None
    return optimizer


def wide(values: np.ndarray) -> np.dtype:
    """The type in which updates of `values` are worked out: the square of a small gradient is zero in float16."""
    return np.promote_types(values.dtype, np.float32)


def new_slots(optimizer: Optimizer, values: np.ndarray) -> List[np.ndarray]:
    """What goes with `values`, before the first update."""
    return [np.zeros_like(values, wide(values)) for _ in range(optimizer.slots)]
