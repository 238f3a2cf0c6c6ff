"""Files and folders of Kubernetes objects, as the verbs for Workflows are given them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..workflows.objects import Object

STANDARD_INPUT = "-"
SUFFIXES = (".yaml", ".yml", ".json")


def read_objects(places: Iterable[Path]) -> list[Object]:
    """All objects in files and, folder by folder, in their files. Raises ManifestError, OSError."""
    from ..workflows.objects import read

    return [each for file in files_in(places) for each in read(contents(file), shown(file))]


def contents(file: Path) -> bytes:
    """Of a file, or of standard input. Raises OSError."""
    return sys.stdin.buffer.read() if str(file) == STANDARD_INPUT else file.read_bytes()


def shown(file: Path) -> str:
    return "<stdin>" if str(file) == STANDARD_INPUT else str(file)


def files_in(places: Iterable[Path]) -> Iterator[Path]:
    """The files themselves; of folders, what is YAML or JSON by its name, in order."""
    for place in places:
        if not place.is_dir():
            yield place
            continue
        found = sorted(file for file in place.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        if not found:
            raise click.ClickException(f"{place} has no file that ends in {', '.join(SUFFIXES)}")
        yield from found


def read_parameters(file: Path) -> dict[str, str]:
    """A map of names to values, which become text as a Workflow's own do. Raises ManifestError, OSError."""
    from ..workflows.objects import read_map
    from ..workflows.submission import parameter_text

    values = read_map(file.read_bytes(), str(file))
    return {name: parameter_text(value) for name, value in values.items()}
