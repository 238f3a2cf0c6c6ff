"""What a field may hold, and the walk that finds what an object says beyond that."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..patches import PatchError, parse_patch
from ..paths import Path
from .functions import refused_in, refused_in_tags

REFUSED = "not executed by the embedded engine"
UNKNOWN = "unknown field"


class Finding(NamedTuple):
    """A field that isn't executed, or holds what can't be: where, why, and whether the Workflow is refused for it.

    `malformed`: what it holds isn't of the kind that Argo knows there, so that nobody can make sense of it.
    """

    path: Path
    why: str
    refused: bool = True
    malformed: bool = False


class Kind:
    """What a field may hold. This one: anything."""

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        yield from ()


class Scalar(Kind):
    def __init__(self, says: str, *types: type) -> None:
        self.says, self.types = says, types

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        if not isinstance(value, self.types) or (isinstance(value, bool) and bool not in self.types):
            yield _malformed(path, self.says)
        elif isinstance(value, str):
            yield from (Finding(path, f"{name}: {REFUSED}") for name in refused_in_tags(value))


class AtLeast(Scalar):
    """A whole number."""

    def __init__(self, least: int) -> None:
        super().__init__(f"a whole number, {least} or more", int)
        self.least = least

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        wrong = list(super().look(value, path))
        yield from wrong or ([_malformed(path, self.says)] if value < self.least else [])


class Expression(Kind):
    """Text that is an expression from end to end."""

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        yield from TEXT.look(value, path)
        if isinstance(value, str):
            yield from (Finding(path, f"{name}: {REFUSED}") for name in refused_in(value))


class OneOf(Kind):
    """Argo knows more values; these are executed."""

    def __init__(self, *known: str) -> None:
        self.known = known

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        if value not in self.known:
            instead = ", ".join(word for word in self.known if word)
            yield Finding(path, f"{value}: {REFUSED}; it knows {instead}")


class Each(Kind):
    """A list, of `least` items or more."""

    def __init__(self, inner: Kind, least: int = 0) -> None:
        self.inner, self.least = inner, least

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        if not isinstance(value, list):
            yield _malformed(path, "a list")
            return
        if len(value) < self.least:
            yield _malformed(path, f"a list of {self.least} or more")
        for index, item in enumerate(value):
            yield from self.inner.look(item, (*path, index))


class Named(Kind):
    """A mapping with names of the user's choice."""

    def __init__(self, inner: Kind) -> None:
        self.inner = inner

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        if not isinstance(value, Mapping):
            yield _malformed(path, "a mapping")
            return
        for key, item in value.items():
            if item is not None:
                yield from self.inner.look(item, (*path, str(key)))


class Table(Kind):
    """An object: its fields that are executed, those without effect (why), those refused (what to do instead)."""

    def __init__(
        self,
        title: str,
        executed: Mapping[str, Kind],
        without_effect: Mapping[str, str] | None = None,
        refused: Mapping[str, str] | None = None,
    ) -> None:
        self.title = title
        self.define(executed, without_effect, refused)

    def define(
        self,
        executed: Mapping[str, Kind],
        without_effect: Mapping[str, str] | None = None,
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Gives a table its fields, if one of them is to hold the table itself."""
        self.executed, self.without_effect, self.refused = executed, without_effect or {}, refused or {}

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        if not isinstance(value, Mapping):
            yield _malformed(path, "a mapping")
            return
        for key, inner in value.items():
            if inner is None:
                continue
            where = (*path, str(key))
            if key in self.executed:
                yield from self.executed[key].look(inner, where)
            elif inner is False or inner == []:  # it asks for nothing; but `suspend: {}` says something
                continue
            elif key in self.without_effect:
                yield Finding(where, self.without_effect[key], refused=False)
            elif key in self.refused:
                instead = self.refused[key]
                yield Finding(where, f"{REFUSED}; {instead}" if instead else REFUSED)
            else:
                yield Finding(where, f"{UNKNOWN}{self._meant(str(key))}")

    def _meant(self, key: str) -> str:
        known = [*self.executed, *self.without_effect, *self.refused]
        close = difflib.get_close_matches(key, known, n=1)
        return f"; did you mean {close[0]}?" if close else ""


class Patch(Kind):
    """Text that holds an object."""

    def __init__(self, inner: Table) -> None:
        self.inner = inner

    def look(self, value: Any, path: Path) -> Iterator[Finding]:
        if not isinstance(value, str):
            yield _malformed(path, "text")
            return
        try:
            patch = parse_patch(value)
        except PatchError:
            if "{{" not in value:  # else it may be one once its references are resolved
                yield Finding(path, "is neither JSON nor YAML")
            return
        yield from self.inner.look(patch, path)


def _malformed(path: Path, says: str) -> Finding:
    return Finding(path, f"should be {says}", malformed=True)


ANY = Kind()
TEXT = Scalar("text", str)
FLAG = Scalar("true or false", bool)
WHOLE = Scalar("a whole number", int)
WHOLE_OR_TEXT = Scalar("a whole number or text", int, str)
VALUE = Scalar("text, a number, true or false", str, int, float, bool)
EXPRESSION = Expression()
TEXTS = Each(TEXT)
LABELS = Named(TEXT)


def texts(*names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, TEXT)


def because(why: str, *names: str) -> dict[str, str]:
    """Fields that share a reason, or what to do instead."""
    return dict.fromkeys(names, why)
