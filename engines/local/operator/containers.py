"""What runs in a template's pod: its main containers, under their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("container", "script", "containerSet")  # of templates whose pod runs containers of theirs

Template = Mapping[str, Any]


def runs_pod(template: Template) -> bool:
    return any(template.get(kind) is not None for kind in KINDS)


def mains(template: Template) -> list[tuple[str, Mapping[str, Any]]]:
    """The main containers of a template and their names, the mounts of a set's own in each."""
    if template.get("containerSet") is not None:
        shared = template["containerSet"].get("volumeMounts") or []
        containers = template["containerSet"].get("containers") or []
        return [(c["name"], {**c, "volumeMounts": [*(c.get("volumeMounts") or []), *shared]}) for c in containers]
    return [("main", template[kind]) for kind in ("container", "script") if template.get(kind) is not None]


def everything(template: Template) -> list[Mapping[str, Any]]:
    """All containers of a template's pod."""
    others = [*(template.get("initContainers") or []), *(template.get("sidecars") or [])]
    return [*(container for _, container in mains(template)), *others]
