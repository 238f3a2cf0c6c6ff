"""Outputs of nodes that are outputs of the Workflow, too: `globalName`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .jsontext import text


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
    for artifact in (outputs or {}).get("artifacts") or []:
        if artifact.get("globalName"):
            own = {key: value for key, value in artifact.items() if key not in ("globalName", "path")}
            own["name"] = artifact["globalName"]
            held = status.get("outputs") or {}
            others = [known for known in held.get("artifacts") or [] if known["name"] != own["name"]]
            if own not in (held.get("artifacts") or []):
                status["outputs"] = {**held, "artifacts": [*others, own]}
    return found
