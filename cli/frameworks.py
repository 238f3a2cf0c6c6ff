"""`ffdl frameworks`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from . import text
from .output import write, write_lines
from .settings import Settings, Verb, on_terminal, output_option, tell

if TYPE_CHECKING:
    from ..workflows.catalogue import Catalogue, Entry

SOME = 3  # versions shown of each in the list of all
NARROW = 24  # columns of words worth showing


@click.command(
    "frameworks",
    cls=Verb,
    engine=False,
    examples=("ffdl frameworks", "ffdl frameworks tensorflow", "ffdl frameworks -o json"),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option("table", "json", "yaml", "name")
@click.pass_obj
def command(settings: Settings, names: tuple[str, ...], output: str) -> None:
    """List the frameworks that a manifest may name; of those named, the versions and what runs for each.

    They are ffdl's own and those in the file that FFDL_CATALOGUE, or catalogue: in config.yml, names.
    """
    catalogue = settings.catalogue()
    for name in names:
        if name not in catalogue.entries:
            raise click.ClickException(_unknown(name, catalogue))
    chosen = {name: catalogue.entries[name] for name in names or catalogue.entries}
    if output == "name":
        click.echo("\n".join(chosen))
    elif output != "table":
        write([_plain(name, entry) for name, entry in chosen.items()], output)
    elif names:
        write_lines("\n\n".join("\n".join(_versions(name, entry)) for name, entry in chosen.items()).splitlines())
    else:
        rows = [(name, entry.image or "", entry.module or "", _some(entry)) for name, entry in chosen.items()]
        rows.append(("custom", "the manifest's version is the whole image", "", ""))
        write_lines(_fitting(("NAME", "IMAGE", "MODULE", "VERSIONS"), rows))
        tell("\n`ffdl frameworks NAME` lists all versions of one; others are taken as the image's tag")


def _unknown(name: str, catalogue: Catalogue) -> str:
    from ..workflows.errors import nearest

    near = nearest(name, catalogue.entries)
    instead = f"did you mean {near}?" if near else f"there are {', '.join(catalogue.entries)}"
    return f"no framework is called {name!r}; {instead}"


def _plain(name: str, entry: Entry) -> dict[str, Any]:
    versions = [(version, entry.choice(version)) for version in entry.known()]
    return {
        "name": name,
        "image": entry.image,
        "module": entry.module,
        "install": entry.install,
        "warning": entry.warning,
        "file": entry.file,
        "versions": [
            {"version": version, "runs": choice.image, "because": choice.because, "refused": choice.refused}
            for version, choice in versions
        ],
    }


def _some(entry: Entry) -> str:
    """The first versions that run as they are written, and how many more there are."""
    known = list(entry.known())
    own = [version for version in known if not entry.choice(version).because]
    shown = own[:SOME] or known[:SOME]
    more = len(known) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more and shown else "")


def _versions(name: str, entry: Entry) -> list[str]:
    """A framework and its versions."""
    facts = [
        ("Name", name),
        ("Image", entry.image or ""),
        ("Module", f"{entry.module} ({entry.install})" if entry.module and entry.install else entry.module or ""),
        ("From", entry.file),
        ("Warning", entry.warning),
    ]
    lines = [f"{title:<8}  {text.printable(value)}" for title, value in facts if value]
    choices = [(version, entry.choice(version)) for version in entry.known()]
    if choices:
        rows = [(version, choice.image or "nothing", text.printable(choice.because)) for version, choice in choices]
        lines += ["", *_fitting(("VERSION", "RUNS", "BECAUSE"), rows)]
    return lines


def _fitting(headings: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A table whose last column is cut where a terminal ends."""
    if on_terminal(sys.stdout):
        before = sum(max(map(len, column)) + 2 for column in list(zip(headings, *rows, strict=True))[:-1])
        room = max(NARROW, text.terminal_width() - before)
        rows = [(*row[:-1], text.shortened(row[-1], room)) for row in rows]
    return text.table(headings, rows)
