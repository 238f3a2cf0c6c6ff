"""What is wrong with Workflows in files, with its line: what Argo refuses, and what the embedded engine does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..workflows.errors import ManifestError, Problem, printable
from ..workflows.objects import Object
from ..workflows.submission import (
    CONFIG_MAP,
    RUNNABLE,
    SECRET,
    TEMPLATES,
    Path,
    as_workflow,
    config_map,
    path_in,
    secret,
)
from .local import operator

INVALID, UNSUPPORTED, NO_EFFECT = "invalid", "unsupported", "no-effect"
_PATH = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_SHAPE = re.compile(r": should be a (mapping|list)$")


@dataclass(frozen=True)
class Finding:
    """`kind` is INVALID (Argo refuses it), UNSUPPORTED (the embedded engine does) or NO_EFFECT (nothing comes of it
    there).
    """

    kind: str
    problem: Problem


def findings(objects: Sequence[Object]) -> list[Finding]:
    """All that is to be said of the objects, file by file in the order of their lines."""
    found = [finding for each in objects for finding in _of_object(each)]
    found += _duplicates(objects)
    files = {each.file: number for number, each in reversed(list(enumerate(objects)))}
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda finding: (files[finding.problem.file], finding.problem.line))


def _of_object(source: Object) -> list[Finding]:
    if source.kind in RUNNABLE:
        workflow = as_workflow(source)
        if source.kind in TEMPLATES:
            workflow = _with_entrypoint(workflow)
        return of_workflow(workflow, source, lint=True)
    read = {CONFIG_MAP: config_map, SECRET: secret}.get(source.kind)
    try:
        if read is not None:
            read(source)
    except ManifestError as error:
        return [Finding(INVALID, problem) for problem in error.problems]
    return []


def of_workflow(workflow: Mapping[str, Any], source: Object, *, lint: bool = False) -> list[Finding]:
    """What is wrong with `workflow`, which was made of `source`. With `lint` its parameters may still have no value."""

    def finding(kind: str, path: Path, message: str) -> Finding:
        return Finding(kind, source.problem(printable(message), *path_in(source, path)))

    fields = list(_fields(workflow))
    found = [finding(kind, path, message) for kind, path, message in fields]
    if any(kind == INVALID for kind, _, _ in fields):  # of such a shape that nothing more can be said
        return found
    return found + [finding(INVALID, path, said) for path, said in operator.problems(_named(workflow), lint=lint)]


def _named(workflow: Mapping[str, Any]) -> Mapping[str, Any]:
    """A `generateName` stands for a name that is to come."""
    metadata = workflow.get("metadata") or {}
    if metadata.get("name") or not metadata.get("generateName"):
        return workflow
    return {**workflow, "metadata": {**metadata, "name": f"{metadata['generateName']}00000"}}


def _fields(workflow: Mapping[str, Any]) -> Iterator[tuple[str, Path, str]]:
    for said in operator.unsupported(workflow):
        yield INVALID if _SHAPE.search(said) else UNSUPPORTED, _path(said), said
    for said in operator.without_effect(workflow):
        yield NO_EFFECT, _path(said), said


def _path(said: str) -> Path:
    """Of `spec.templates[2].http: why`: ("spec", "templates", 2, "http")."""
    text = said.partition(": ")[0]
    return tuple(int(index) if index else name for name, index in _PATH.findall(text))


def _with_entrypoint(workflow: dict[str, Any]) -> dict[str, Any]:
    """A WorkflowTemplate that is only referred to needs none; all of its templates are checked all the same."""
    spec = workflow.get("spec")
    if not isinstance(spec, dict) or spec.get("entrypoint") or not isinstance(spec.get("templates"), list):
        return workflow
    names = [template.get("name") for template in spec["templates"] if isinstance(template, dict)]
    return {**workflow, "spec": {**spec, "entrypoint": names[0]}} if names else workflow


def _duplicates(objects: Sequence[Object]) -> Iterator[Finding]:
    """Objects of the same kind and name: of two, one would be lost."""
    seen: dict[tuple[str, str], Object] = {}
    for each in objects:
        if each.name and (first := seen.setdefault((each.kind, each.name), each)) is not each:
            said = f"a second {each.kind} called {each.name}; the first is in {first.file}:{first.line()}"
            yield Finding(INVALID, each.problem(said, "metadata", "name"))
