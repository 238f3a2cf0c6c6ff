"""The catalogue of frameworks: the image of each version, the module that learners import, how to get it.

catalogue.yml is ffdl's own. A site has a further file of that form, whose entries change those of ffdl or come on top.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, ClassVar

from . import yaml_lines
from .errors import ManifestError, shown
from .keys import LINE, WRONG, Key, ListOf, Part, PartOf, Value, Written, matching
from .tags import IMAGE, TAG, UNTAGGED
from .yaml_lines import Place, Report, Scalar

CUSTOM = "custom"  # the name for any image, which no catalogue has
WHAT = "a catalogue"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


def _runs(node: Scalar) -> str:
    """A tag, or a whole image, which has a `/`."""
    if not (IMAGE if "/" in node.text else TAG).fullmatch(node.text):
        raise ValueError(f"is {shown(node.text)}, no tag and no image; write one such as 1.15.5 or team/image:1.15.5")
    return node.text


_TAGS = ListOf(matching(TAG, "an image's tag", "latest"), "[latest, 2.19.0]")


class Outdated(Part):
    """Versions that don't run as they are written."""

    document: ClassVar[str] = WHAT
    title: ClassVar[str] = "in outdated"

    versions: Annotated[
        tuple[str, ...], Key(_TAGS, "Which.", missing="{path}.versions is not set; write versions: [TAG]")
    ]
    runs: Annotated[str | None, Key(Value("a tag, or a whole image", _runs), "What runs instead.")] = None
    because: Annotated[str, Key(LINE, "Why.", missing="{path}.because is not set; write a few words for the user")]


@dataclass(frozen=True)
class Choice:
    """What a version runs in. `because` is set where that is not its own image, or none (`refused`)."""

    image: str
    because: str = ""
    refused: bool = False


class Entry(Part):
    """A framework."""

    document: ClassVar[str] = WHAT
    title: ClassVar[str] = "in an entry of a catalogue"

    image: Annotated[
        str | None,
        Key(
            matching(UNTAGGED, "an image's name without a tag", "registry.example.org:5000/team/tensorflow"),
            "The image, without a tag: the version is the tag.",
        ),
    ] = None
    module: Annotated[
        str | None, Key(matching(_MODULE, "the name of a Python module", "torch"), "What learners import.")
    ] = None
    install: Annotated[str, Key(LINE, "A command that brings the module.")] = ""
    versions: Annotated[tuple[str, ...], Key(_TAGS, "Versions to choose from. Others are taken as they are.")] = ()
    outdated: Annotated[
        tuple[Outdated, ...],
        Key(ListOf(PartOf(Outdated), "- {versions: [1.4.0], runs: 1.15.5, because: …}"), "Versions that are not run."),
    ] = ()
    warning: Annotated[str, Key(LINE, "What whoever uses it is told.")] = ""
    file: str = ""
    """The site's file that has written of it; '' where none has."""

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        outdated = written.get("outdated")
        if outdated is None or outdated.value is WRONG:
            return
        versions = written.get("versions")
        seen = set() if versions is None or versions.value is WRONG else set(versions.value)
        for each in outdated.value:
            for version in each.versions:
                if version in seen:
                    report.say(outdated.place, f"{path} has {shown(version)} twice; keep one of the two")
                seen.add(version)

    def choice(self, tag: str) -> Choice:
        """What runs for `tag`."""
        because, gone = "", set()
        while (old := self._outdated(tag)) is not None and tag not in gone:
            because = because or old.because
            if old.runs is None:
                return Choice("", old.because, refused=True)
            if "/" in old.runs:
                return Choice(old.runs, because)
            gone.add(tag)
            tag = old.runs
        return Choice(f"{self.image}:{tag}", because)

    def known(self) -> Iterable[str]:
        """All versions that the entry speaks of: first those that run as they are written."""
        old = [version for each in self.outdated for version in each.versions]
        return dict.fromkeys([*(version for version in self.versions if version not in old), *old])

    def circle(self) -> str | None:
        """A version that is said to run instead of itself."""
        outdated = (version for version in self.known() if self._outdated(version) is not None)
        return next((each for each in outdated if self.choice(each).image == f"{self.image}:{each}"), None)

    def changed(self, site: Entry) -> Entry:
        """With what `site` has written. Versions that it lists run as they are, its outdated ones come on top."""
        kept = tuple(
            each.model_copy(update={"versions": versions})
            for each in self.outdated
            if (versions := tuple(version for version in each.versions if version not in site.versions))
        )
        values = {name: getattr(site, name) for name in site.model_fields_set}
        return self.model_copy(update={**values, "outdated": (*site.outdated, *kept)})

    def _outdated(self, tag: str) -> Outdated | None:
        return next((each for each in self.outdated if tag in each.versions), None)


@dataclass(frozen=True)
class Catalogue:
    """Entries by the framework's name."""

    entries: Mapping[str, Entry]

    @property
    def names(self) -> list[str]:
        """All that `framework.name` may be."""
        return [*self.entries, CUSTOM]

    def extended(self, data: bytes, file: str) -> Catalogue:
        """With the entries of `data`, which messages call `file`. Raises ManifestError with all that is wrong."""
        report = Report()
        root = yaml_lines.parse(data, file, report, WHAT)
        if not isinstance(root, yaml_lines.Mapping):
            place = Place(0, 1, file) if root is None else root.place
            report.fail(place, "is no catalogue; write the name of a framework with image: below it")
        entries = dict(self.entries)
        for name, (at, node) in root.entries.items():
            if not _NAME.fullmatch(name) or name == CUSTOM:
                report.say(at, f"{shown(name)} can't be a framework's name; write one such as my-team.torch")
                continue
            entry = Entry.read(node, at, name, report)
            if not isinstance(entry, Entry):
                continue
            if name in entries:
                entry = entries[name].changed(entry)
            elif entry.image is None:
                report.say(at, f"{name}.image is not set; write the image's name without a tag, such as team/{name}")
            if round_trip := entry.circle():
                report.say(at, f"{name}.outdated leads from {shown(round_trip)} back to it; write what really runs")
            entries[name] = entry.model_copy(update={"file": file})
        if len(report):
            raise ManifestError(report.problems())
        return Catalogue(entries)


@cache
def shipped() -> Catalogue:
    """ffdl's own."""
    own = Catalogue({}).extended(files(__package__).joinpath("catalogue.yml").read_bytes(), "catalogue.yml")
    return Catalogue({name: entry.model_copy(update={"file": ""}) for name, entry in own.entries.items()})
