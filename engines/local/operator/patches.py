"""`podSpecPatch`: text that says what is different about a pod."""

from __future__ import annotations

import json
from typing import Any


class PatchError(ValueError):
    """A podSpecPatch that can't be read."""


def parse_patch(patch: str) -> dict[str, Any]:
    """A podSpecPatch, which is JSON or YAML. Raises PatchError."""
    try:
        parsed = json.loads(patch)
    except ValueError:
        import yaml  # rare, and a start-up cost

        try:
            parsed = yaml.safe_load(patch)
        except yaml.YAMLError:
            parsed = None
    if not isinstance(parsed, dict):
        raise PatchError("Error applying PodSpecPatch")
    return parsed
