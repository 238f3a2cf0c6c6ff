"""Argo Workflows that are no training jobs: what one needs to become a job of this engine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..base import Refused
from ..tree import node_path

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


def waiting(workflow: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The nodes of suspend templates that wait."""
    nodes = ((workflow.get("status") or {}).get("nodes") or {}).values()
    return [node for node in nodes if node.get("type") == "Suspend" and node.get("phase") == "Running"]


def the_waiting(workflow: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """The one that is called `name`, by its path, display name or id; without a name the only one. Raises Refused."""
    job_id = workflow["metadata"]["name"]
    found = waiting(workflow)
    paths = ", ".join(node_path(job_id, node) for node in found)
    if not found:
        raise Refused(f"{job_id} waits at no node; `ffdl show {job_id}` shows them all")
    named = [n for n in found if name in (None, node_path(job_id, n), n["displayName"], n["name"], n["id"])]
    if not named:
        raise Refused(f"{job_id} does not wait at {name}; it waits at {paths}")
    if len(named) > 1:
        raise Refused(f"{job_id} waits at several nodes; name one with --node: {paths}")
    return named[0]
