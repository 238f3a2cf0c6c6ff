"""Errors of a manifest, as the person at the terminal reads them: one line each, with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong at `line` of `file` (0: `file` has no lines): what is wrong; what to write instead."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class ManifestError(Exception):
    """Everything that is wrong with a manifest, in the order of its lines."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def shown(text: str, most: int = 60) -> str:
    """`text` in quotes for a message: on one line, at most `most` characters, nothing that a terminal acts on."""
    return "'" + printable(text if len(text) <= most else text[: most - 3] + "...") + "'"


def printable(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a sentence: `a, b and c`, of many the first `most`."""
    if len(names) > most:
        return f"{', '.join(names[:most])}, …"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` was most likely meant to be, or None."""
    plain = {_plain(name): name for name in known}
    if _plain(word) in plain:
        return plain[_plain(word)]
    close = difflib.get_close_matches(_plain(word)[:60], plain, n=1, cutoff=0.7)
    return plain[close[0]] if close else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
