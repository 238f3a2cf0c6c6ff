"""How a key of the manifest is declared, read and explained, so that models, errors and manual come from one place.

A model is a `Part`; each of its fields is annotated with a `Key`, whose `Kind` reads a YAML node or says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from . import quantities
from .errors import nearest, shown
from .references import credential
from .yaml_lines import Mapping, Node, Place, Report, Scalar, Sequence, text

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class _Wrong:
    """What a reader returns when it has reported a problem."""


WRONG = _Wrong()


class Kind:
    """What a value may be."""

    null: ClassVar[str] = ""
    """What to say of a key with nothing behind it; '' counts it as not written."""

    def words(self) -> str:
        """What it is, for messages and the manual."""
        raise NotImplementedError

    def read(self, node: Node, place: Place, path: str, report: Report) -> Any:
        """The value of `node`, which stands behind a key at `place`, or WRONG after having said why."""
        raise NotImplementedError

    def spell(self, value: Any) -> str:
        """`value` as a manifest writes it."""
        return str(value)


@dataclass(frozen=True)
class Key:
    """One key: what it holds, what it means, what is said when it must be there and is not, other names it goes by."""

    kind: Kind
    meaning: str
    missing: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value(Kind):
    """A scalar. `parse` gets it and raises ValueError("is …; write …")."""

    what: str
    parse: Callable[[Scalar], Any]
    speller: Callable[[Any], str] = str

    def words(self) -> str:
        return self.what

    def read(self, node: Node, place: Place, path: str, report: Report) -> Any:
        if not isinstance(node, Scalar):
            report.say(node.place, f"{path} is a {_shape(node)}, not one value; write {self.words()}")
            return WRONG
        try:
            return self.parse(Scalar(node.place, "") if node.null else node)
        except ValueError as error:
            report.say(node.place, f"{path} {error}")
            return WRONG

    def spell(self, value: Any) -> str:
        return self.speller(value)


def printing(node: Scalar) -> str:
    """Text without control characters. Raises ValueError."""
    if _CONTROL.search(node.text):
        raise ValueError(
            f"is {shown(node.text)}, which holds a line break or a control character; write one line of text"
        )
    return text(node)


def one_line(node: Scalar) -> str:
    return printing(Scalar(node.place, node.text.strip()))


TEXT = Value("text", text)
CREDENTIAL = Value("text or `${NAME}`", credential)
LINE = Value("one line of text", one_line)
SIZE = Value(
    "a size, such as 4GB", lambda node: quantities.size(node.text) if node.text else None, quantities.spell_size
)
DURATION = Value(
    "a duration, such as 90s or 2h", lambda node: quantities.duration(node.text), quantities.spell_duration
)


def whole(least: int, most: int = 10**6) -> Value:
    return Value(f"a whole number from {least}", lambda node: quantities.whole(node.text, least, most))


def choice(*known: str, later: dict[str, str] | None = None) -> Value:
    """One of `known`; the names in `later` are refused with what to write until this version can do them."""

    def parse(node: Scalar) -> str:
        if node.text in known:
            return node.text
        if later and node.text in later:
            raise ValueError(f"is {shown(node.text)}, which is not in this version; {later[node.text]}")
        fix = nearest(node.text, known) or f"{', '.join(known[:-1])} or {known[-1]}"
        raise ValueError(f"is {shown(node.text)}, which is unknown; write {fix}")

    return Value(" or ".join(f"`{name}`" for name in known), parse)


def matching(pattern: re.Pattern[str], what: str, example: str) -> Value:
    def parse(node: Scalar) -> str:
        if not pattern.fullmatch(node.text):
            raise ValueError(f"is {shown(node.text)}, not {what}; write one such as {example}")
        return node.text

    return Value(what, parse)


@dataclass(frozen=True)
class ListOf(Kind):
    item: Kind
    example: str

    def words(self) -> str:
        return f"a list, such as {self.example}"

    def read(self, node: Node, place: Place, path: str, report: Report) -> Any:
        if not isinstance(node, Sequence):
            report.say(node.place, f"{path} is a {_shape(node)}, not a list; write {self.words()}")
            return WRONG
        values = [
            self.item.read(item, item.place, f"{path}.{number}", report) for number, item in enumerate(node.items)
        ]
        return WRONG if any(value is WRONG for value in values) else tuple(values)

    def spell(self, value: Any) -> str:
        return f"[{', '.join(self.item.spell(item) for item in value)}]"


@dataclass(frozen=True)
class MapOf(Kind):
    """A map with keys of the user's: `name` checks one, raising ValueError."""

    item: Kind
    example: str
    name: Callable[[str], None] = field(default=lambda name: None)

    def words(self) -> str:
        return f"a map, such as {self.example}"

    def read(self, node: Node, place: Place, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            report.say(node.place, f"{path} is a {_shape(node)}, not keys and values; write {self.words()}")
            return WRONG
        values = {}
        for name, (at, value) in node.entries.items():
            try:
                self.name(text(Scalar(at, name)))
            except ValueError as error:
                report.say(at, f"the name {shown(name)} in {path} {error}")
                continue
            values[name] = self.item.read(value, at, _join(path, name), report)
        return WRONG if len(values) < len(node.entries) or any(value is WRONG for value in values.values()) else values


@dataclass(frozen=True)
class Written:
    """A key as it was read: where it stands, where its value does, and the value (or WRONG)."""

    place: Place
    at: Place
    value: Any


class Part(BaseModel):
    """A map with known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)

    document: ClassVar[str] = "a manifest"
    """What it is a part of."""
    title: ClassVar[str] = ""
    """Where the part stands there."""
    refused: ClassVar[dict[str, str]] = {}
    """Keys that are known and not taken: what is wrong; what to write."""

    @classmethod
    def declared(cls) -> Iterator[tuple[str, str, Key]]:
        """Each key's name in a manifest, its field's name and its Key."""
        for name, info in cls.model_fields.items():
            for key in info.metadata:
                if isinstance(key, Key):
                    yield info.alias or name, name, key

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        """Says what is wrong between keys, each of which has been read. `place` is the part's own."""

    @classmethod
    def values(cls, read: dict[str, Any]) -> dict[str, Any]:
        """The model's fields from what was read."""
        return read

    @classmethod
    def read(cls, node: Node, place: Place, path: str, report: Report) -> Self | _Wrong:
        """The part, or WRONG. It stands behind the key `path` ('' for the whole manifest) at `place`."""
        if not isinstance(node, Mapping):
            names = ", ".join(name for name, _, _ in cls.declared())
            report.say(node.place, f"{path} is a {_shape(node)}, not keys and values; write {path}: with {names}")
            return WRONG
        said = len(report)
        known = {also: (name, key) for name, _, key in cls.declared() for also in (name, *key.also)}
        written: dict[str, Written] = {}
        for word, (at, value) in node.entries.items():
            if word in cls.refused:
                report.say(at, f"{_join(path, word)} {cls.refused[word]}")
            elif word not in known:
                report.say(at, f"the key {shown(word)} is unknown {cls.title}; {_instead(word, cls)}")
            elif known[word][0] in written:
                report.say(at, f"{_join(path, word)} is written under two names; keep {known[word][0]}")
            else:
                name, key = known[word]
                blank = isinstance(value, Scalar) and (value.null or (key.missing != "" and not value.text.strip()))
                if not blank:
                    written[name] = Written(at, value.place, key.kind.read(value, at, _join(path, word), report))
                elif key.kind.null or key.missing:
                    report.say(at, key.kind.null or key.missing.replace("{path}", path))
                    written[name] = Written(at, value.place, WRONG)
        for name, _, key in cls.declared():
            if key.missing and name not in written:
                report.say(place, key.missing.replace("{path}", path))
        cls.check(written, place, path, report)
        if len(report) > said:
            return WRONG
        return cls(**cls.values({name: each.value for name, each in written.items()}))


@dataclass(frozen=True)
class PartOf(Kind):
    part: type[Part]
    as_map: bool = False
    """Hand on a plain dict of the keys that were written."""

    def words(self) -> str:
        return "keys: " + ", ".join(name for name, _, _ in self.part.declared())

    def read(self, node: Node, place: Place, path: str, report: Report) -> Any:
        part = self.part.read(node, place, path, report)
        if not self.as_map or not isinstance(part, Part):
            return part
        return part.model_dump(by_alias=True, exclude_none=True)


def _join(path: str, word: str) -> str:
    return f"{path}.{shown(word)[1:-1]}" if path else shown(word)[1:-1]


def _instead(word: str, part: type[Part]) -> str:
    """What to write for a key that `part` does not know."""
    names = [name for name, _, _ in part.declared()]
    if near := nearest(word, names):
        return f"write {near}"
    others = [other for other in Part.__subclasses__() if other.document == part.document]
    homes = [other.title for other in others if word in {name for name, _, _ in other.declared()}]
    return f"move it: it belongs {homes[0]}" if homes else f"remove it (known: {', '.join(names)})"


def _shape(node: Node) -> str:
    return "list" if isinstance(node, Sequence) else "map" if isinstance(node, Mapping) else "single value"
