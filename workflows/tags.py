"""Names of images and their tags: what they may look like, and which tag was most likely meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
TAG = re.compile(_TAG)
REGISTRY = re.compile(rf"{_PART}(?::[0-9]{{1,5}})?")
REPOSITORY = re.compile(rf"{_PART}(?:/{_PART}){{0,8}}")
UNTAGGED = re.compile(rf"(?:{REGISTRY.pattern}/)?{REPOSITORY.pattern}")
IMAGE = re.compile(rf"{UNTAGGED.pattern}(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?")


def meant(tag: str, known: Iterable[str]) -> str | None:
    """The known tag that `tag` is a slip of: the same numbers but for zeros at their ends, words that look the same.

    Another number is another version, which may well exist: nothing is meant by that.
    """
    numbers, words = _read(tag)
    best: tuple[float, str] | None = None
    for each in known:
        others = _read(each)
        alike = difflib.SequenceMatcher(None, words, others[1]).ratio() if words != others[1] else 1.0
        if numbers == others[0] and alike > 0.75 and (best is None or alike > best[0]):
            best = alike, each
    return best[1] if best else None


def _read(tag: str) -> tuple[tuple[str, ...], str]:
    """Numbers and words of a tag, each in an order of their own: `v1.5.0-gpu-py3` -> (1.5, 3), `gpu py`."""
    pieces = re.findall(r"[0-9]+(?:\.[0-9]+)*|[a-z]+", tag.lower())
    numbers = sorted(re.sub(r"(?:\.0+)+$", "", piece) for piece in pieces if piece[0].isdecimal())
    return tuple(numbers), " ".join(sorted(piece for piece in pieces if piece[0].isalpha() and piece != "v"))
