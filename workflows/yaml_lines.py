"""YAML read as text with line numbers: no types are guessed, every scalar is what stands in the file.

What can't be read as one bounded document is a ManifestError with one problem; duplicate and odd keys are reported and
reading goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import yaml

from .errors import ManifestError, Problem, printable, shown

if TYPE_CHECKING:
    from .catalogue import Catalogue

MOST_BYTES = 256 * 1024
MOST_DEPTH = 32
MOST_NODES = 20_000
MOST_PROBLEMS = 100

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_HINTS = (
    ("cannot start any token", "a value begins with a character that YAML keeps for itself; put the value in quotes"),
    ("mapping values are not allowed", "a ': ' stands where none may; put text with ': ' in quotes, or indent anew"),
    ("could not find expected ':'", "this is not 'key: value'; write KEY: VALUE, or indent the text under its key"),
    ("end of stream", "a quote is opened here and never closed; close it"),
    ("escape", "a backslash in double quotes means something else to YAML; use single quotes"),
    ("flow sequence", "a '[' is not closed properly; close it with ']', and put text that begins with '[' in quotes"),
    ("flow mapping", "a '{' is not closed properly; close it with '}', and put text that begins with '{' in quotes"),
    ("sequence entries are not allowed", "a '- ' stands behind a key; begin the list on a line of its own"),
    ("block", "the indentation does not fit the lines before; align the keys of one level with spaces"),
    ("document start", "this does not go on from the lines before; write KEY: VALUE, or indent it"),
    ("node content", "a value is missing here; write one, or put the text in quotes"),
    ("found unexpected ':'", "a ':' stands where none may; put the text in quotes"),
    ("directive", "a line begins with '%'; remove it, or put it in quotes"),
    ("incompatible YAML", "the file asks for another version of YAML; remove its '%YAML' line"),
)  # fmt: skip


class Place(NamedTuple):
    """Where something was written. `order` sorts the manifest (0) before each `--set` (1, 2, …); line 0 is none."""

    order: int
    line: int
    file: str


class Report:
    """Collects what is wrong. Its length grows with each problem.

    `catalogue` is what readers of a manifest must know besides the file: the frameworks that there are.
    """

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self.catalogue = catalogue
        self._said: list[tuple[Place, str]] = []

    def __len__(self) -> int:
        return len(self._said)

    def say(self, place: Place, message: str) -> None:
        """Keeps `message`, made printable. Raises ManifestError once there are more than a person will read."""
        self._said.append((place, printable(message)))
        if len(self) >= MOST_PROBLEMS:
            more = Problem(place.file, 0, f"has more problems than these {MOST_PROBLEMS}; correct these first")
            raise ManifestError([*self.problems(), more])

    def problems(self) -> list[Problem]:
        """In the order of the lines; what was said twice of one line (an alias) comes once."""
        ordered = sorted(self._said, key=lambda said: said[0][:2])
        return [Problem(place.file, place.line, message) for place, message in dict.fromkeys(ordered)]

    def fail(self, place: Place, message: str) -> NoReturn:
        """Nothing can be read after this."""
        self.say(place, message)
        raise ManifestError(self.problems())


@dataclass(frozen=True)
class Scalar:
    """One value as it stands in the file. `style` is '' (plain), ', ", | or >."""

    place: Place
    text: str
    style: str = ""
    tagged: bool = False

    @property
    def null(self) -> bool:
        return not self.style and not self.tagged and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True)
class Sequence:
    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Mapping:
    place: Place
    entries: dict[str, tuple[Place, Node]] = field(default_factory=dict)
    """Value by key, each with the place of its key."""


Node = Scalar | Sequence | Mapping


def text(node: Scalar) -> str:
    """The text of `node` if it can travel as UTF-8 through a shell. Raises ValueError("is …; write …")."""
    if "\0" in node.text:
        raise ValueError("holds a NUL character; remove it")
    if any("\ud800" <= each <= "\udfff" for each in node.text):
        raise ValueError("is not UTF-8; write it as UTF-8 text")
    return node.text


def parse(data: bytes, file: str, report: Report, what: str = "a manifest") -> Node | None:
    """The one document of `data`, which is `what`, None if it is empty. Raises ManifestError."""

    text = decoded(data, file, report, MOST_BYTES, what)
    try:
        return _Composer(text, file, report, what).document()
    except yaml.MarkedYAMLError as error:
        line, message = explained(error, text)
        report.fail(Place(0, line, file), message)


def decoded(data: bytes, file: str, report: Report, most: int, what: str) -> str:
    """The text of `data`, of which `what` has at most `most` bytes. Raises ManifestError for what is no text."""

    def at(line: int) -> Place:
        return Place(0, line, file)

    if len(data) > most:
        large = f"{len(data) / 1e6:.1f} MB" if len(data) >= 10**6 else f"{len(data) // 1000} kB"
        report.fail(
            at(1),
            f"has {large}, and {what} at most {most // 1024} KiB; put data and code into files of their own",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        report.fail(at(line), f"is not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8")
    if odd := _NOT_TEXT.search(text):
        line = len(re.findall(r"\r\n|\r|\n", text[: odd.start()])) + 1
        report.fail(at(line), f"holds the character U+{ord(odd[0]):04X}, which is not text; remove it")
    return text


def parse_scalar(text: str, place: Place) -> Scalar | None:
    """`text` if it is one quoted YAML scalar, else None."""
    try:
        node = _Composer(text, place.file, Report()).document()
    except (yaml.YAMLError, ManifestError):
        return None
    return Scalar(place, node.text, node.style, node.tagged) if isinstance(node, Scalar) else None


class _Composer:
    """Builds nodes from YAML events. An alias is the node it names, counted again, so that no file grows by aliases."""

    def __init__(self, text: str, file: str, report: Report, what: str = "a manifest") -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))
        self._file, self._report, self._what = file, report, what
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._nodes = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._report.fail(self._place(event), "a second document begins here; keep one in a file")
                root = self._node(next(self._events), 1)
        return None if isinstance(root, Scalar) and root.null else root

    def _place(self, event: Any) -> Place:
        return Place(0, event.start_mark.line + 1, self._file)

    def _node(self, event: Any, depth: int) -> Node:
        place, before = self._place(event), self._nodes
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), place)
        self._count(1, place)
        if depth > MOST_DEPTH:
            self._report.fail(place, f"is nested more than {MOST_DEPTH} levels deep; {self._what} needs six")
        if event.anchor:
            self._anchors[event.anchor] = None
        if event.tag not in (None, "!", *_TAGS):
            tag = shown(event.tag.replace("tag:yaml.org,2002:", "!!"))
            self._report.say(place, f"has the tag {tag}, which {self._what} does not use; remove it")
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(place, event.value, event.style or "", event.tag is not None)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = Sequence(place)
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                node.items.append(self._node(item, depth + 1))
        else:
            node = self._mapping(place, depth)
        if event.anchor:
            self._anchors[event.anchor] = node, self._nodes - before
        return node

    def _alias(self, name: str, place: Place) -> Node:
        named = self._anchors.get(name)
        if named is None:
            wrong = "stands inside what it names" if name in self._anchors else "names nothing"
            self._report.fail(
                place,
                f"the alias {shown('*' + name)} {wrong}; write the value, or put text that begins with '*' in quotes",
            )
        self._count(named[1], place)
        return named[0]

    def _count(self, more: int, place: Place) -> None:
        self._nodes += more
        if self._nodes > MOST_NODES:
            self._report.fail(
                place, f"holds more than {MOST_NODES} values, aliases counted; put data into files of their own"
            )

    def _mapping(self, place: Place, depth: int) -> Mapping:
        mapping = Mapping(place)
        merged: list[Node] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            at = self._place(event)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, Scalar):
                self._report.say(
                    at, "a key is a list or a map, not text; put text that begins with '{' or '[' in quotes"
                )
            elif not key.text:
                self._report.say(at, "a key is empty; write KEY: VALUE")
            elif key.text == "<<" and not key.style:
                merged += value.items if isinstance(value, Sequence) else [value]
            elif key.text in mapping.entries:
                first = mapping.entries[key.text][0].line
                self._report.say(at, f"{shown(key.text)} is written twice, first on line {first}; keep one of them")
            else:
                mapping.entries[key.text] = at, value
        for source in merged:
            if isinstance(source, Mapping):
                for name, entry in source.entries.items():
                    mapping.entries.setdefault(name, entry)
            else:
                self._report.say(source.place, "'<<' merges something that is not a map; write <<: *NAME of a map")
        return mapping


def explained(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """Line and sentence for what the YAML parser could not read."""
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    lines = re.split(r"\r\n|\r|\n|\x85|\u2028|\u2029", text)
    written = lines[line] if line < len(lines) else ""
    if re.match(r" *\t", written) or (mark and written[mark.column : mark.column + 1] == "\t"):
        return line + 1, "a tab stands in the indentation; use spaces"
    for words, message in _HINTS:
        if words in problem or words in context:
            opened = (
                words not in ("block", "sequence entries are not allowed", "cannot start any token")
                and error.context_mark is not None
            )
            return (error.context_mark.line if opened and error.context_mark else line) + 1, message
    return line + 1, f"is not YAML ({problem}); correct this line"
