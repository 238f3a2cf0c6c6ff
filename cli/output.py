"""Data on stdout in the form asked for: JSON, YAML or names. Tables are each verb's own."""

from __future__ import annotations

import json
from typing import Any

import click

from . import text


def write(value: Any, form: str) -> None:
    """Prints `value` (plain values only) as `json` (of a list, an item a line) or `yaml`."""
    if form == "json":
        if isinstance(value, list) and value:
            click.echo("[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]")
        else:
            click.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def write_record(value: Any, form: str) -> None:
    """Prints one record of a stream: a line of JSON, or a YAML document."""
    if form == "json":
        click.echo(json.dumps(value, ensure_ascii=False))
    else:
        click.echo("---")
        write(value, form)


def write_lines(lines: list[str]) -> None:
    """Prints lines that may hold colours; they are dropped where stdout is not a terminal."""
    click.echo("\n".join(lines), color=text.coloured())
