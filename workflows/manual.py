"""The manual of the manifest (docs/manifest.md), made from the models that read it."""

from __future__ import annotations

from collections.abc import Iterator

from .catalogue import CUSTOM, shipped
from .keys import Key, Kind, ListOf, MapOf, Part, PartOf
from .manifest import Manifest

EXAMPLE = """\
name: digits
framework:
  name: numpy
  version: latest
  command: python train.py --epochs 30
learners: 1
cpus: 1
memory: 1GB
data_stores:
  - id: digits
    type: mount_volume
    training_data:
      container: data
    training_results:
      container: results
    connection:
      type: host_mount
      path: /srv/digits
checkpoint:
  interval: 30s
retry:
  attempts: 2
env:
  LEVEL: info
"""

_HEAD = f"""\
# The manifest

A manifest says what a training job is. It is a YAML file; FfDL's manifests are accepted as they are.

```yaml
{EXAMPLE}```

Values are taken as they are written: `version: 1.0` is the text `1.0`, and a job may be called `no`. A key with nothing
behind it counts as not written. A key that is not listed here is an error, and so is a value that can't be read: all
errors of a file are shown at once, each as `FILE:LINE: what is wrong; what to write instead`. `ffdl lint` shows them
without starting anything. A file has at most 256 KiB; anchors, aliases and `<<` work.

- **Sizes** are a whole number with `MB`, `MiB`, `GB` or `GiB`, in any case, and exact: 1GB is 1000 MB,
  1GiB is 1024 MiB.
- **Durations** are whole numbers with `d`, `h`, `m`, `s`, from large to small: `90s`, `2h`, `1h30m`.
- **`--set KEY=VALUE`** replaces one value for one run: `--set framework.command='python train.py --lr 0.1'`,
  `--set data_stores.0.connection.path=/data`. The value is taken as it is written; quotes around it are YAML's, nothing
  behind the `=` removes the key.
"""


def render() -> str:
    """The whole page, Markdown."""
    parts = [_HEAD, *(_section(path, part) for path, part in _parts("", Manifest)), _frameworks()]
    return "\n".join(parts)


def _parts(path: str, part: type[Part]) -> Iterator[tuple[str, type[Part]]]:
    """Each part with the path of its keys, as a manifest nests them."""
    yield path, part
    for name, _, key in part.declared():
        inner, below = key.kind, f"{path}.{name}" if path else name
        while isinstance(inner, ListOf | MapOf):
            below += "[]" if isinstance(inner, ListOf) else ".NAME"
            inner = inner.item
        if isinstance(inner, PartOf):
            yield from _parts(below, inner.part)


def _section(path: str, part: type[Part]) -> str:
    lines = [f"## `{path}`" if path else "## Keys", "", "| key | holds | default | meaning |", "|---|---|---|---|"]
    for name, field, key in part.declared():
        names = " or ".join(f"`{each}`" for each in (name, *key.also))
        cells = (names, _holds(key.kind), _default(part, field, key), key.meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if part.refused:
        lines += ["", "Not taken:", *(f"- `{name}` {why}." for name, why in part.refused.items())]
    return "\n".join([*lines, ""])


def _holds(kind: Kind) -> str:
    return "keys, below" if isinstance(kind, PartOf) else kind.words()


def _default(part: type[Part], field: str, key: Key) -> str:
    info = part.model_fields[field]
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None or isinstance(value, Part) or value in ("", (), {}):
        return ""
    return f"`{key.kind.spell(value)}`"


def _frameworks() -> str:
    lines = ["## Frameworks", "", "| name | image | module | how to get it |", "|---|---|---|---|"]
    for name, entry in shipped().entries.items():
        lines.append(f"| `{name}` | `{entry.image}:VERSION` | `{entry.module}` | `{entry.install}` |")
    lines += [
        f"| `{CUSTOM}` | `version` is the image | | |",
        "",
        "Where a learner runs without its image, on one machine, its module must be importable. `ffdl frameworks NAME`",
        "lists versions, and what runs instead of those that are out of date. A site may change these and add its own:",
        "[Frameworks](frameworks.md).",
        "",
    ]
    return "\n".join(lines)
