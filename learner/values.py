"""What a script says of its progress: numbers of steps and metrics, checked."""

from __future__ import annotations

import operator
from typing import Any, Union

LONGEST_METRIC_NAME = 200  # characters


def count(name: str, value: Any) -> int:
    """`value` as a whole number. Raises TypeError, ValueError."""
    if type(value) is not int:
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} must be a whole number, but is {value!r:.80}") from None
    if value < 0:
        raise ValueError(f"{name} must not be negative, but is {value}")
    return int(value)


def number(name: str, value: Any) -> Union[int, float]:
    """The metric `name` as a plain number. Raises TypeError, ValueError."""
    if len(name) > LONGEST_METRIC_NAME:
        raise ValueError(f"the metric {name[:20]}… has a name of more than {LONGEST_METRIC_NAME} characters")
    if type(value) is float or type(value) is int:
        return value
    try:
        plain = value.item() if hasattr(value, "item") else value
        return int(plain) if isinstance(plain, int) else float(plain)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"the metric {name!r} is not a number but {type(value).__name__}: {value!r:.80}") from None
