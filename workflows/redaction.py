"""A manifest's text without the credentials written in it: what travels beside a job is read by its learners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from .references import REFERENCE

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SECRET_KEYS = ("password", "access_token")
INSTEAD = '"(left out)"'
_ANCHOR = re.compile(r"&\S+\s+")


def without_credentials(text: bytes) -> bytes:
    """The text of a valid manifest, its passwords and tokens left out; a `${NAME}`, which gives nothing away, stays."""
    manifest = text.decode("utf-8-sig")
    spans = {_span(node) for node in _secrets(yaml.compose(manifest, Loader=_LOADER), set())}
    for start, end in sorted(spans, reverse=True):
        written = manifest[start:end]
        anchor = match.group() if (match := _ANCHOR.match(written)) else ""
        line_end = "\n" if written.endswith("\n") else ""
        manifest = manifest[:start] + anchor + INSTEAD + line_end + manifest[end:]
    return manifest.encode()


def _span(node: yaml.ScalarNode) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index


def _secrets(node: Any, seen: set[int]) -> Iterator[yaml.ScalarNode]:
    """The values behind SECRET_KEYS; one that is used in several places comes once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _secrets(item, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(value, yaml.ScalarNode):
                yield from _secrets(value, seen)
            elif key.value in SECRET_KEYS and value.value and not REFERENCE.fullmatch(value.value):
                yield value
