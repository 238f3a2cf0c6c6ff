"""`templateDefaults`: what templates have that don't say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Template = Mapping[str, Any]

_KINDS = ("container", "containerSet", "steps", "script", "resource", "dag", "suspend", "data", "http", "plugin")
# Lists whose items have a name of their own, and are merged by it; others are taken whole.
_KEYS = {
    **dict.fromkeys(("artifacts", "initContainers", "parameters", "sidecars", "tasks", "volumes", "env"), "name"),
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "tolerations": "key",
    "hostAliases": "ip",
}


def with_defaults(template: Template, defaults: Template | None) -> Template:
    """`template` with what it leaves to `defaults`, less what of them belongs to another kind of template."""
    if not defaults:
        return template
    others = [kind for kind in _KINDS if template.get(kind) is None]
    fitting = {key: value for key, value in defaults.items() if key not in others}
    merged: Template = _merged(fitting, template)
    return merged


def _merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for key, value in own.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            merged[key] = _merged(default, value)
        elif isinstance(value, list) and isinstance(default, list) and key in _KEYS:
            merged[key] = _by_name(default, value, _KEYS[key])
        elif value is not None:
            merged[key] = value
    return merged


def _by_name(defaults: list[Any], own: list[Any], key: str) -> list[Any]:
    """Both lists as one: the template's own order, a default before those that it stands before."""
    places = {item.get(key): index for index, item in enumerate(defaults)}
    taken = {item.get(key) for item in own}
    left = [item for item in defaults if item.get(key) not in taken]
    found: list[Any] = []
    for item in own:
        place = places.get(item.get(key))
        while place is not None and left and places[left[0].get(key)] < place:
            found.append(left.pop(0))
        found.append(item if place is None else _merged(defaults[place], item))
    return found + left
