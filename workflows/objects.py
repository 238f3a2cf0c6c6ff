"""Kubernetes objects read from YAML or JSON: several documents in a file, each value with its line.

Values get the types that Kubernetes' own reader gives them (YAML 1.1 by way of JSON): `yes` is true, `1.0` is 1, dates
are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from .errors import ManifestError, Problem, shown
from .yaml_lines import MOST_DEPTH, Place, Report, decoded, explained

MOST_BYTES = 16 << 20  # ten times what a cluster's API would take
MOST_VALUES = 1_000_000

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR, _NULL, _BOOL, _INT, _FLOAT, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "null", "bool", "int", "float", "merge")
)
_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLS = {
    form: truth
    for truth, words in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for word in words
    for form in (word, word.capitalize(), word.upper())
}
_WHOLE = re.compile(r"[-+]?(0[bB][01]+|0[oO]?[0-7]+|0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)")
_REAL = re.compile(r"[-+]?(\.?[0-9]+|[0-9]+\.[0-9]*|[0-9]*\.[0-9]+)([eE][-+]?[0-9]+)?")
_OF_AN_OBJECT = re.compile(rb"^(apiVersion|kind)\s*:", re.MULTILINE)
_LARGEST_WHOLE = 1e21  # from here on JSON writes a float with an exponent

PathPart = str | int


class _Loader(_BASE):  # type: ignore[misc]
    """Composes nodes whose tags say what Kubernetes would take a plain scalar for."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is not yaml.ScalarNode or not implicit[0]:
            return str(super().resolve(kind, value, implicit))
        return _tag(value)


def _tag(text: str) -> str:
    if text in _NULLS:
        return _NULL
    if text in _BOOLS:
        return _BOOL
    if text == "<<":
        return _MERGE
    if text[0] not in "+-.0123456789":
        return _STR
    plain = text.replace("_", "")
    if _WHOLE.fullmatch(plain):
        return _INT
    return _FLOAT if _REAL.fullmatch(plain) else _STR


class Object:
    """One object: its `value`, and where each part of it stands in `file`."""

    def __init__(self, value: dict[str, Any], file: str, node: yaml.MappingNode) -> None:
        self.value, self.file, self._node = value, file, node

    @property
    def kind(self) -> str:
        return str(self.value.get("kind") or "")

    @property
    def name(self) -> str:
        metadata = self.value.get("metadata")
        return str((metadata.get("name") or "") if isinstance(metadata, dict) else "")

    def line(self, *path: PathPart) -> int:
        """The line (from 1) of the value that `path` leads to; of the last part of the way that is there."""
        node: yaml.Node = self._node
        line = node.start_mark.line
        for part in path:
            found = _step(node, part)
            if found is None:
                break
            line, node = found
        return int(line) + 1

    def written(self, *path: PathPart) -> str | None:
        """The scalar that `path` leads to as it is written in the file; None for anything else."""
        node: yaml.Node = self._node
        for part in path:
            found = _step(node, part)
            if found is None:
                return None
            node = found[1]
        return str(node.value) if isinstance(node, yaml.ScalarNode) else None

    def problem(self, message: str, *path: PathPart) -> Problem:
        return Problem(self.file, self.line(*path), message)


def _step(node: yaml.Node, part: PathPart) -> tuple[int, yaml.Node] | None:
    """The line and node of a part of `node`; what was merged into a mapping stands where it was written."""
    if isinstance(node, yaml.SequenceNode):
        inside = isinstance(part, int) and 0 <= part < len(node.value)
        return (node.value[part].start_mark.line, node.value[part]) if inside else None
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == str(part) and key.tag != _MERGE:
            return key.start_mark.line, value
    for key, value in node.value:
        if key.tag == _MERGE:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if (found := _step(source, part)) is not None:
                    return found
    return None


def holds_objects(data: bytes) -> bool:
    """Whether `data` is meant to be Kubernetes objects, and not, say, a manifest."""
    return bool(_OF_AN_OBJECT.search(data)) or (data.lstrip().startswith(b"{") and b"apiVersion" in data)


def read(data: bytes, file: str) -> list[Object]:
    """The objects in `data`, those of a `kind: List` one by one. Raises ManifestError."""
    objects: list[Object] = []

    def take(reader: _Reader, root: yaml.Node) -> None:
        objects.extend(reader.objects(root))

    _compose(data, file, take)
    return objects


def read_map(data: bytes, file: str) -> dict[str, Any]:
    """The one map that `data` is. Raises ManifestError."""
    found: dict[str, Any] = {}

    def take(reader: _Reader, root: yaml.Node) -> None:
        found.update(reader.mapping(root))

    _compose(data, file, take)
    return found


def _compose(data: bytes, file: str, take: Callable[[_Reader, yaml.Node], None]) -> None:
    """Hands each document to `take`. Raises ManifestError."""
    report = Report()
    text = decoded(data, file, report, MOST_BYTES, "a file of Workflows")
    reader = _Reader(file, report)
    try:
        for root in yaml.compose_all(text, Loader=_Loader):
            take(reader, root)
    except yaml.MarkedYAMLError as error:
        line, message = explained(error, text)
        report.fail(Place(0, line, file), message)
    except RecursionError:
        report.fail(Place(0, 1, file), f"is nested too deep; an object needs fewer than {MOST_DEPTH} levels")
    if len(report):
        raise ManifestError(report.problems())


class _Reader:
    """Makes values of composed nodes."""

    def __init__(self, file: str, report: Report) -> None:
        self._file, self._report = file, report
        self._values: dict[int, tuple[yaml.Node, Any, int]] = {}  # by id(node): of aliases, once; how many values
        self._open: set[int] = set()

    def mapping(self, root: yaml.Node) -> dict[str, Any]:
        value, _ = self._value(root)
        if not isinstance(value, dict):
            self._report.fail(self._place(root), "is no map; write NAME: VALUE")
        return value

    def objects(self, root: yaml.Node) -> Iterator[Object]:
        value, _ = self._value(root)
        if value is None:
            return
        if not isinstance(value, dict):
            self._report.fail(self._place(root), "is no object; it needs apiVersion, kind, metadata and spec")
        items = _step(root, "items")
        if value.get("kind") == "List" and items is not None and isinstance(items[1], yaml.SequenceNode):
            for item in items[1].value:
                yield from self.objects(item)
            return
        assert isinstance(root, yaml.MappingNode)
        if not isinstance(value.get("kind"), str):
            words = "is a training job's manifest; `ffdl train` takes it" if "framework" in value else ""
            self._report.fail(self._place(root), words or "has no kind; write what it is, like kind: Workflow")
        metadata = _step(root, "metadata")
        if metadata is not None and not isinstance(value["metadata"], dict):
            self._report.fail(self._place(metadata[1]), "metadata should be a map; write metadata: {name: NAME}")
        yield Object(value, self._file, root)

    def _place(self, node: yaml.Node) -> Place:
        return Place(0, node.start_mark.line + 1, self._file)

    def _value(self, node: yaml.Node) -> tuple[Any, int]:
        """The value of `node`, and of how many it consists, aliases counted."""
        known = self._values.get(id(node))
        if known is not None:
            return known[1], known[2]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node), 1
        if id(node) in self._open:
            self._report.fail(self._place(node), "an alias stands inside what it names; write the value")
        self._open.add(id(node))
        value, count = self._mapping(node) if isinstance(node, yaml.MappingNode) else self._sequence(node)
        self._open.discard(id(node))
        if count > MOST_VALUES:
            self._report.fail(self._place(node), f"holds more than {MOST_VALUES} values, aliases counted")
        self._values[id(node)] = node, value, count
        return value, count

    def _sequence(self, node: yaml.Node) -> tuple[list[Any], int]:
        found = [self._value(item) for item in node.value]
        return [value for value, _ in found], 1 + sum(count for _, count in found)

    def _mapping(self, node: yaml.MappingNode) -> tuple[dict[str, Any], int]:
        value: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        count = 1
        for key, inner in node.value:
            place = self._place(key)
            if not isinstance(key, yaml.ScalarNode):
                self._report.say(place, "a key is a list or a map, not text")
            elif key.tag == _MERGE:
                merged += inner.value if isinstance(inner, yaml.SequenceNode) else [inner]
            elif key.value in lines:
                first = lines[key.value]
                self._report.say(place, f"{shown(key.value)} is written twice, first on line {first}; keep one of them")
            else:
                lines[key.value] = place.line
                value[key.value], more = self._value(inner)
                count += more
        for source in merged:
            inherited, more = self._value(source)
            count += more
            if not isinstance(inherited, dict):
                self._report.fail(self._place(source), "'<<' merges something that is not a map; write <<: *NAME")
            for name, entry in inherited.items():
                value.setdefault(name, entry)
        return value, count

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL and text in _BOOLS:
            return _BOOLS[text]
        plain = text.replace("_", "")
        if node.tag == _INT and _WHOLE.fullmatch(plain):
            return _whole(plain)
        if node.tag in (_INT, _FLOAT) and _REAL.fullmatch(plain):
            number = float(plain)
            if math.isinf(number):
                self._report.say(self._place(node), f"{shown(text)} is too large a number; put it in quotes")
            return int(number) if number.is_integer() and abs(number) < _LARGEST_WHOLE else number
        return text


def _whole(plain: str) -> int:
    digits = plain.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    number = int(digits, 8 if octal else 0)
    return -number if plain.startswith("-") else number
