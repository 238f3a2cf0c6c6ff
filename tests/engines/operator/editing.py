"""Workflows with one thing changed."""

from __future__ import annotations

import copy
from typing import Any


def put(workflow: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `workflow` with `value` at `path` of its spec, such as `templates/0/dag/tasks`."""
    workflow = copy.deepcopy(workflow)
    *holders, last = path.split("/")
    place: Any = workflow["spec"]
    for holder in holders:
        place = place[int(holder)] if holder.isdigit() else place.setdefault(holder, {})
    place[int(last) if last.isdigit() else last] = value
    return workflow
