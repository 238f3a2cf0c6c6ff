"""The functions of sprig 3 that `sprig.NAME(…)` calls."""

from __future__ import annotations

from . import lists, maps, numbers, texts, values
from .function import Function

FUNCTIONS: dict[str, Function] = {
    **texts.FUNCTIONS, **numbers.FUNCTIONS, **lists.FUNCTIONS, **maps.FUNCTIONS, **values.FUNCTIONS,
}  # fmt: skip
