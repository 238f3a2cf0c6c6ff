"""Argo Workflows that are no training jobs: what one needs to become a job of this engine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..base import Refused

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes makes names of: no word comes out by chance
_SUFFIX_LENGTH = 5
MOST_OF_A_PREFIX = 58  # of a `generateName`: a name has at most 63 characters


def generated(prefix: str) -> str:
    """A name as Kubernetes makes one of `generateName`."""
    return prefix[:MOST_OF_A_PREFIX] + "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in os.urandom(_SUFFIX_LENGTH))


def renamed(name: str) -> str:
    """A new name like `name`: with another end where it has a generated one."""
    base, _, end = name.rpartition("-")
    return generated(f"{base if base and len(end) == _SUFFIX_LENGTH and set(end) <= set(_SUFFIX) else name}-")


def named(workflow: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `workflow` with a name, without a status. Raises Refused for a name that no object may have."""
    metadata = dict(workflow.get("metadata") or {})
    prefix = metadata.pop("generateName", None)
    name = metadata.get("name") or (generated(prefix) if prefix else None)
    if not name:
        raise Refused("metadata.name is required; write a name or a generateName")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise Refused(f"metadata.name {name!r} is no name: lower-case letters, digits, '-' and '.' only")
    metadata["name"] = name
    return {key: value for key, value in workflow.items() if key != "status"} | {"metadata": metadata}
