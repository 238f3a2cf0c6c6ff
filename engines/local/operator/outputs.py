"""Outputs of nodes that are outputs of the Workflow, too: `globalName`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .names import text


def publish(status: dict[str, Any], outputs: Mapping[str, Any] | None) -> dict[str, str]:
    """Adds what of `outputs` has a `globalName` to the Workflow's `status`; the references it can be found by.

    The lists in `status` are replaced, not changed.
    """
    found: dict[str, str] = {}
    for parameter in (outputs or {}).get("parameters") or []:
        name = parameter.get("globalName")
        if not name:
            continue
        entry = {"name": name} | ({"value": parameter["value"]} if "value" in parameter else {})
        if "value" in parameter:
            found[f"workflow.outputs.parameters.{name}"] = text(parameter["value"])
        held = status.get("outputs") or {}
        others = held.get("parameters") or []
        if not any(known["name"] == name for known in others):
            others = [*others, entry]
        elif "value" in parameter:
            others = [entry if known["name"] == name else known for known in others]
        status["outputs"] = {**held, "parameters": others}
    return found
