"""What `ffdl doctor` finds: one line each, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

OK, PROBLEM, NOTE, UNSEEN = "ok", "problem", "note", "unseen"


@dataclass(frozen=True)
class Finding:
    """`state` is OK, PROBLEM, NOTE (unusual, perhaps on purpose) or UNSEEN (could not be looked at).

    `remedy` is a command or YAML that can be used as it stands.
    """

    topic: str
    state: str
    words: str
    remedy: str = ""
