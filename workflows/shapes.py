"""Values of a user's YAML as what they should be, for those who leave it to others to say that they are not."""

from __future__ import annotations

from typing import Any


def mapping(value: Any) -> dict[str, Any]:
    """`value` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings in the list `value`; of anything else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
