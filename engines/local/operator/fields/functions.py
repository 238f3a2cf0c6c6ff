"""Functions that an expression calls and that nobody here can run: refused by name, as fields are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..expressions import ExpressionError, parse
from ..expressions.supported import not_executed

_TAG = re.compile(r"\{\{=(.*?)\}\}", re.DOTALL)


def refused_in(source: str) -> Iterator[str]:
    """Those of an expression, each once. One that can't be read is another check's."""
    try:
        yield from dict.fromkeys(not_executed(parse(source)))
    except ExpressionError:
        return


def refused_in_tags(text: str) -> Iterator[str]:
    """Those of the `{{=…}}` of a text."""
    for tag in _TAG.findall(text) if "{{=" in text else ():
        yield from refused_in(tag)
