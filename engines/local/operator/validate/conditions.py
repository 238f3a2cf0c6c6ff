"""Expressions that can't be read, or that look up what isn't there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..expressions import ExpressionError, parse
from ..expressions.argo import ADDED
from ..expressions.checker import check
from ..expressions.supported import identifiers
from ..paths import Path
from .problem import Problem


def unreadable(source: str, where: str, path: Path, known: Mapping[str, Any] | None = None) -> Iterator[Problem]:
    """`known`: all that the expression may look up, as nested names with values of the right kinds; None: anything."""
    try:
        tree = parse(source)
        if known is not None:
            check(tree, source, {**known, **ADDED})
    except ExpressionError as error:
        yield Problem(path, f"{where}: {error}", ours=True)
        return
    if known is None:
        return
    for name in identifiers(tree):
        if name.partition(".")[0] in known and not _holds(known, name):
            yield Problem(path, f"{where}: unknown name {name}", ours=True)


def _holds(known: Any, name: str) -> bool:
    for part in name.split("."):
        if not isinstance(known, Mapping) or part not in known:
            return False
        known = known[part]
    return True
