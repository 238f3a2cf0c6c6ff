"""Checks of `arguments`: a value for each, and none that can't be handed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..paths import Path
from .problem import PARAMETER, Problem, artifacts, named, parameters

_LOCATIONS = ("s3", "git", "http", "artifactory", "hdfs", "raw", "oss", "gcs", "azure", "plugin")
_FROM_ELSEWHERE = ("configMapKeyRef", "event", "supplied")
_FROM_A_NODE = ("path", "jsonPath", "parameter", "expression")


def arguments(holder: Mapping[str, Any], where: str, path: Path, empty: bool = False) -> Iterator[Problem]:
    """`where` is `arguments` in messages, `path` leads to it; `empty`: values may still be supplied."""
    path = (*path, "arguments")
    yield from named(parameters(holder, "arguments"), f"{where}.parameters", (*path, "parameters"), PARAMETER)
    yield from named(artifacts(holder, "arguments"), f"{where}.artifacts", (*path, "artifacts"), PARAMETER)
    for index, argument in enumerate(parameters(holder, "arguments")):
        name = f"{where}.{argument.get('name', '')}"
        for at, message in _parameter(argument, name, empty):
            yield Problem((*path, "parameters", index, *at), message)
    for index, artifact in enumerate(artifacts(holder, "arguments")):
        name = f"{where}.{artifact.get('name', '')}"
        at = (*path, "artifacts", index)
        if not artifact.get("from") and not has_location(artifact):
            yield Problem(at, f"{name}.from, artifact location, or key is required")
        if artifact.get("from") and artifact.get("fromExpression"):
            yield Problem(at, f"{name} shouldn't have both `from` and `fromExpression` in Artifact")


def has_location(artifact: Mapping[str, Any]) -> bool:
    """Whether an artifact says itself where it is."""
    return any(artifact.get(kind) for kind in _LOCATIONS)


def _parameter(argument: Mapping[str, Any], name: str, empty: bool) -> Iterator[tuple[Path, str]]:
    source, value = argument.get("valueFrom"), argument.get("value")
    if source is None and value is None and not empty:
        yield (), f"{name}.value or {name}.valueFrom is required"
        return
    if isinstance(source, Mapping) and (
        any(source.get(kind) for kind in _FROM_A_NODE) or all(source.get(kind) is None for kind in _FROM_ELSEWHERE)
    ):
        yield ("valueFrom",), f"{name}.valueFrom only allows: default, configMapKeyRef and supplied"
    choices = argument.get("enum")
    if choices is None:
        return
    if not choices:
        yield ("enum",), f"{name}.enum should contain at least one value"
    elif value is None:
        if not empty:
            yield (), f"{name}.value is required"
    elif str(value) not in [str(choice) for choice in choices]:
        yield ("value",), f"{name}.value should be present in {name}.enum list"
