"""Checks of a template's `metrics`: they have no effect here, but Argo refuses wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .....workflows.shapes import mapping, mappings
from ..paths import Path
from .problem import Problem, Template

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def check(template: Template, path: Path) -> Iterator[Problem]:
    where, path = f"templates.{template.get('name', '')}", (*path, "metrics", "prometheus")
    for index, metric in enumerate(mappings(mapping(template.get("metrics")).get("prometheus"))):
        name, at = str(metric.get("name") or ""), (*path, index)
        if not _NAME.fullmatch(name):
            said = f"metric name '{name}' is invalid. Metric names must contain alphanumeric characters or '_'"
            yield Problem((*at, "name"), f"{where} {said}")
        for number, label in enumerate(mappings(metric.get("labels"))):
            if not _NAME.fullmatch(str(label.get("key") or "")):
                said = "is invalid: keys may only contain alphanumeric characters or '_'"
                yield Problem((*at, "labels", number, "key"), f"metric label '{label.get('key', '')}' {said}")
        if not metric.get("help"):
            yield Problem(at, f"{where} metric '{name}' must contain a help string under 'help: ' field")
        if found := _value(metric):
            yield Problem(at, f"{where} metric '{name}' error: {found}")


def _value(metric: Mapping[str, Any]) -> str:
    for kind in ("gauge", "counter", "histogram"):
        measured = metric.get(kind)
        if not isinstance(measured, Mapping):
            continue
        value = str(measured.get("value", ""))
        if not value:
            return f"missing {kind}.value"
        if kind == "gauge" and measured.get("realtime") and "resourcesDuration." in value:
            return "'resourcesDuration.*' metrics cannot be used in real-time"
    return ""
