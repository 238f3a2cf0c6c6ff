"""Names, ids and times as Argo writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

_BOUNDARY = re.compile(r"^(\[\d+\])?\.")
_MOST_OF_A_POD_NAME = 242  # Kubernetes' 253, less "-" and Argo's 10 characters for the hash
_CLOSING = {")": "(", "]": "["}


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash, which Argo's ids and pod names are made with."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def node_id(workflow: str, name: str) -> str:
    return workflow if name == workflow else f"{workflow}-{fnv1a(name)}"


def pod_name(workflow: str, node: Mapping[str, Any]) -> str:
    """The pod of `node`: Argo's second version of pod names."""
    if node["name"] == workflow:
        return workflow
    template = template_name(node)
    prefix = f"{workflow}-{template}" if template else workflow
    # ids and pod names end in the same hash of the node's name
    return f"{prefix[:_MOST_OF_A_POD_NAME]}-{node['id'].rpartition('-')[2]}"


def template_name(node: Mapping[str, Any]) -> str:
    """The name of the template of `node`, wherever it is kept; '' for an inline one."""
    return str((node.get("templateRef") or {}).get("template") or node.get("templateName") or "")


def display_name(name: str, boundary: str) -> str:
    """`name` as it is called within the node named `boundary`."""
    return _BOUNDARY.sub("", name.removeprefix(boundary))


def task_name(name: str) -> str:
    """The task or step that the node called `name` runs: `fanout` of `wf.fanout(0:a.b)(1)`."""
    opening, end = "", len(name)
    while end > 0 and (opening or name[end - 1] in _CLOSING):
        end -= 1
        if not opening:
            opening = _CLOSING[name[end]]
        elif name[end] == opening:
            opening = ""
    return name[:end].rpartition(".")[2]


def timestamp(seconds: float) -> str:
    """Unix seconds as Kubernetes writes a time: RFC 3339, whole seconds, UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def _read(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def seconds(time: str | None) -> float:
    """The reverse of `timestamp`; 0 for no time."""
    return _read(time) if time else 0.0
