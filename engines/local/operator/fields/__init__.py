"""Every field of a Workflow is in one of three lists: executed, accepted without effect here, or refused by name.

The lists are tables, one an object (`workflow.py`, `pods.py`). A field in none of them is no field of Argo's, or one
that a later Argo adds: it is refused, too. Without effect are only those whose absence a Workflow can't notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..paths import dotted
from .table import Finding
from .workflow import TEMPLATE, WORKFLOW

__all__ = ["WORKFLOW", "Finding", "findings", "unsupported", "without_effect"]


_STORED = "storedTemplates"


def findings(workflow: Mapping[str, Any]) -> Iterator[Finding]:
    """All that is refused or has no effect, with where it is; also in what was stored of WorkflowTemplates."""
    yield from WORKFLOW.look(workflow, ())
    status = workflow.get("status")
    stored = status.get(_STORED) if isinstance(status, Mapping) else None
    for name, template in (stored or {}).items():
        yield from TEMPLATE.look(template, ("status", _STORED, name))


def unsupported(workflow: Mapping[str, Any]) -> list[str]:
    """What this engine would not do as Argo does: `PATH: not executed by the embedded engine`. Empty: nothing."""
    return [f"{dotted(path)}: {why}" for path, why, refused, _ in findings(workflow) if refused]


def without_effect(workflow: Mapping[str, Any]) -> list[str]:
    """The fields that are set but mean nothing here: `PATH: why`."""
    return [f"{dotted(path)}: {why}" for path, why, refused, _ in findings(workflow) if not refused]
