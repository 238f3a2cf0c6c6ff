"""Paths to the values of a Workflow."""

from __future__ import annotations

Path = tuple[str | int, ...]  # ("spec", "templates", 2, "dag", "tasks", 0, "template")


def dotted(path: Path) -> str:
    """A path as people write it: `spec.templates[2].dag`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
