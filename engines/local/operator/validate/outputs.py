"""Checks of the `outputs` of a template: where each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any

from ..paths import Path
from .conditions import unreadable
from .problem import PARAMETER, Problem, Template, artifacts, named, parameters, wrong_name
from .references import Scope, is_reference, unresolved

_SOURCES = ("path", "jqFilter", "jsonPath", "parameter", "expression")
_CHOICES = "choose one of: path, jqFilter, jsonPath, parameter, raw"
_NAMES = {"container": "Container", "containerSet": "ContainerSet", "script": "Script", "dag": "DAG", "steps": "Steps"}


def check(template: Template, kind: str, path: Path, scope: Scope) -> Iterator[Problem]:
    where, path = f"templates.{template.get('name', '')}", (*path, "outputs")
    given, files = parameters(template, "outputs"), artifacts(template, "outputs")
    yield from named(given, f"{where}.outputs.parameters ", (*path, "parameters"), PARAMETER)
    yield from named(files, f"{where}.outputs.artifacts ", (*path, "artifacts"), PARAMETER)
    if kind in ("dag", "steps"):  # of others, all references are checked
        yield from unresolved(template.get("outputs"), path, scope, f"{where}.outputs")
    for index, artifact in enumerate(files):
        at = (*path, "artifacts", index)
        yield from artifact_path(template, kind, "outputs", artifact, at)
        name = f"{where}.outputs.artifacts.{artifact.get('name', '')}"
        if expression := artifact.get("fromExpression"):
            yield from unreadable(expression, f"{name}.fromExpression", (*at, "fromExpression"))
        yield from _global(artifact, name, at)
    for index, output in enumerate(given):
        at, name = (*path, "parameters", index), f"{where}.outputs.parameters.{output.get('name', '')}"
        if expression := (output.get("valueFrom") or {}).get("expression"):
            yield from unreadable(expression, f"{name}.expression", (*at, "valueFrom", "expression"))
        if found := _source(output, name, kind):
            yield Problem((*at, "valueFrom") if output.get("valueFrom") is not None else at, found)
        yield from _global(output, name, at)


def artifact_path(
    template: Template, kind: str, side: str, artifact: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    """Where a pod has the file: it needs a path, and one that leads nowhere else."""
    where, name = (
        f"templates.{template.get('name', '')}.{side}.artifacts.{artifact.get('name', '')}",
        artifact.get("name"),
    )
    file = artifact.get("path") or ""
    if kind in ("dag", "steps"):
        if file:
            yield Problem((*path, "path"), f"{where}.path only valid in container/script templates")
    elif not file:
        yield Problem(path, f"error in {where}: Artifact '{name}' did not specify a path")
    elif "/../" in file or file.endswith("/.."):
        above = file[: file.find("/../")] if "/../" in file else file[:-3]
        if above and not normpath(file).startswith(f"{above}/"):
            said = f"Artifact '{name}' attempted to use a path containing '..'. Directory traversal is not permitted"
            yield Problem((*path, "path"), f"error in {where}: {said}")


def _global(output: Mapping[str, Any], where: str, path: Path) -> Iterator[Problem]:
    name = output.get("globalName") or ""
    if name and not is_reference(name) and (found := wrong_name(name, PARAMETER)):
        yield Problem((*path, "globalName"), f"{where}.globalName: {found}")


def _source(output: Mapping[str, Any], name: str, kind: str) -> str:
    source = output.get("valueFrom")
    if output.get("value") is not None:
        return f"{name} has both valueFrom and value specified. Choose one." if source is not None else ""
    if source is None:
        return f"{name} does not have valueFrom or value specified"
    count = sum(bool(source.get(key)) for key in _SOURCES) + (source.get("supplied") is not None)
    if count != 1:
        if count:
            return f"multiple valueFrom types specified. {_CHOICES}"
        return f"valueFrom type unspecified. {_CHOICES}, expression"
    if kind in ("container", "containerSet", "script") and not source.get("path"):
        return f"{name}.path must be specified for {_NAMES[kind]} templates"
    if kind == "resource" and not source.get("jqFilter") and not source.get("jsonPath"):
        return f"{name} .jqFilter or jsonPath must be specified for Resource templates"
    if kind in ("dag", "steps") and not source.get("parameter") and not source.get("expression"):
        return f"{name}.parameter or expression must be specified for {_NAMES[kind]} templates"
    return ""
