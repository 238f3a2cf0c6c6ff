"""The expressions of a Workflow, evaluated without eval(): retry and depends conditions, hooks, `{{=…}}` and `when`.

`evaluate` is expr-lang 1.17 with what Argo adds to it; `evaluate_when` is govaluate 3. Values, errors and their words
are those of the Go libraries, as a table of some hundred expressions shows. `supported` names what is executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from . import parser
from .argo import ADDED
from .checker import check
from .errors import ExpressionError, FaultError
from .evaluator import run
from .folding import fold
from .natures import Fields
from .tree import Node
from .values import string_verb, to_json
from .when import evaluate_when

__all__ = [
    "ExpressionError", "Fields", "evaluate", "evaluate_condition", "evaluate_when", "parse", "show",
]  # fmt: skip


def evaluate(source: str, scope: Mapping[str, Any]) -> Any:
    """The value of `source`; names and their members come from nested `scope`. Raises ExpressionError."""
    whole = {**scope, **ADDED}
    check(parse(source), source, whole)
    return run(_folded(source), source, whole)


def evaluate_condition(source: str, scope: Mapping[str, Any]) -> bool:
    """As `evaluate`, for a condition: any value but a boolean is an ExpressionError."""
    whole = {**scope, **ADDED}
    check(parse(source), source, whole)
    try:
        value = run(_folded(source), source, whole)
    except ExpressionError as error:
        raise ExpressionError(f"unable to evaluate expression '{source}': {error}") from None
    if not isinstance(value, bool):
        raise ExpressionError(f"unable to cast expression result '{string_verb(value)}' to bool")
    return value


def show(value: Any) -> str:
    """A value as text, the way templates print it. Raises ExpressionError for one that no JSON can hold."""
    try:
        return value if isinstance(value, str) else to_json(value)
    except FaultError as error:
        raise ExpressionError(f"failed to marshal evaluated expression: {error}") from None


@lru_cache(maxsize=1024)
def parse(source: str) -> Node:
    """Parses without evaluating, for checks ahead of time; the tree is shared. Raises ExpressionError."""
    return parser.parse(source)


@lru_cache(maxsize=1024)
def _folded(source: str) -> Node:
    return fold(parser.parse(source), source)
