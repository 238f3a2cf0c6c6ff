"""Expressions that can't be read, or that look up what isn't there."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..expressions import ExpressionError, names, parse
from ..paths import Path
from .problem import Problem


def unreadable(source: str, where: str, path: Path, known: Collection[str] | None = None) -> Iterator[Problem]:
    """`known`: every name that the expression may use; None: any."""
    try:
        used = names(parse(source))
    except ExpressionError as error:
        yield Problem(path, f"{where}: {error}", ours=True)
        return
    for name in sorted(used.difference(known)) if known is not None else ():
        yield Problem(path, f"{where}: unknown name {name}", ours=True)
