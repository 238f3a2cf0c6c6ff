"""Differences from Argo that are meant: each is a line of docs/argo-subset.md, under "Differences"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from .trees import Difference

KNOWN = Path(__file__).parent / "known.yaml"
DOCUMENT = Path(__file__).parents[2] / "docs" / "argo-subset.md"


@dataclass(frozen=True)
class Known:
    """`why` begins a line of the document; the patterns (regular expressions) say where it shows.

    With `sign` it is in all cases in which a node has that message on Argo alone, and all that differs may come of it.
    """

    why: str
    sign: str | None
    case: re.Pattern[str]
    node: re.Pattern[str]
    field: re.Pattern[str]

    def covers(self, case: str, difference: Difference, signs: frozenset[str]) -> bool:
        pairs = ((self.case, case), (self.node, difference.node), (self.field, difference.field))
        signed = self.sign is None or self.sign in signs
        return signed and all(pattern.fullmatch(text) for pattern, text in pairs)


@cache
def known() -> list[Known]:
    """All of them, from known.yaml."""
    entries = yaml.safe_load(KNOWN.read_text()) or []
    return [
        Known(entry["why"], entry.get("sign"), *(re.compile(entry.get(key, ".*")) for key in ("case", "node", "field")))
        for entry in entries
    ]


def split(case: str, differences: Iterable[Difference]) -> tuple[list[Difference], set[Known]]:
    """The differences of `case` that nobody has explained, and the explanations that the others needed."""
    differences = list(differences)
    signs = frozenset(str(one.argo) for one in differences if one.field == "message")
    unexplained, used = [], set()
    for difference in differences:
        found = next((one for one in known() if one.covers(case, difference, signs)), None)
        if found is None:
            unexplained.append(difference)
        else:
            used.add(found)
    return unexplained, used
