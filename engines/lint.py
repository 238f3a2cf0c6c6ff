"""What is wrong with Workflows in files, with its line: what Argo refuses, and what the embedded engine does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from ..workflows.errors import ManifestError, Problem, printable, shown
from ..workflows.objects import Object
from ..workflows.submission import (
    CONFIG_MAP,
    KINDS,
    RUNNABLE,
    SECRET,
    TEMPLATES,
    Path,
    Submission,
    as_workflow,
    config_map,
    path_in,
    secret,
)
from ..workflows.template_refs import Library
from .local.operator import fields
from .local.operator.fields.table import UNKNOWN
from .local.operator.paths import dotted
from .local.operator.validate import Problem as Mistake
from .local.operator.validate import mistakes
from .local.plain import MOST_OF_A_PREFIX

INVALID, UNRESOLVED, UNSUPPORTED, NO_EFFECT = "invalid", "unresolved", "unsupported", "no-effect"
WARNING = "warning"
NO_TEXT = "should be text"
_NOTHING = "nothing-begins-here"


@dataclass(frozen=True)
class Finding:
    """`kind` is INVALID (Argo refuses it), UNRESOLVED (Argo too, unless its cluster has what is missing), UNSUPPORTED
    (the embedded engine does) or NO_EFFECT (nothing comes of it there); a manifest's may be a WARNING.
    """

    kind: str
    problem: Problem
    malformed: bool = False  # not of the shape that Argo knows, so that nobody can make sense of it


def findings(objects: Sequence[Object]) -> list[Finding]:
    """All that is to be said of the objects, file by file in the order of their lines."""
    library = Library([each.value for each in objects if each.kind in TEMPLATES])
    found = [finding for each in objects for finding in _of_object(each, library)]
    found += _duplicates(objects)
    files = {each.file: number for number, each in reversed(list(enumerate(objects)))}
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda finding: (files[finding.problem.file], finding.problem.line))


def unknown(objects: Sequence[Object], *, named: bool) -> Iterator[Finding]:
    """Objects of no kind that is looked at: a misspelt one, and where their file was `named`, any."""
    for each in objects:
        if each.kind in KINDS:
            continue
        near = get_close_matches(each.kind, KINDS, n=1, cutoff=0.8)
        if near and str(each.value.get("apiVersion", "")).startswith("argoproj.io/"):
            yield Finding(INVALID, each.problem(f"kind {each.kind} does not exist; write {near[0]}", "kind"))
        elif named:
            yield Finding(WARNING, each.problem(f"is not looked at: kind {each.kind} is none that runs here", "kind"))


def _of_object(source: Object, library: Library) -> list[Finding]:
    if source.kind in RUNNABLE:
        return of_workflow(as_workflow(source), source, library, lint=True)
    read = {CONFIG_MAP: config_map, SECRET: secret}.get(source.kind)
    try:
        if read is not None:
            read(source)
    except ManifestError as error:
        return [Finding(INVALID, problem) for problem in error.problems]
    return []


def of_workflow(workflow: Mapping[str, Any], source: Object, library: Library, *, lint: bool = False) -> list[Finding]:
    """What is wrong with `workflow`, which was made of `source` and may refer to what is in `library`.

    With `lint` its parameters may still have no value.
    """

    def finding(kind: str, path: Path, message: str) -> Finding:
        return Finding(kind, source.problem(printable(message), *path_in(source, path)))

    gone = list(library.missing(workflow))
    missing = [finding(UNRESOLVED, path, message) for path, message in gone]
    whole = _named(library.joined(workflow))
    found = [
        replace(finding(_kind(each), each.path, _words(each, source)), malformed=each.malformed)
        for each in fields.findings(whole)
    ]
    if any(each.malformed for each in found):  # then nothing more can be said
        return found
    if stored := library.stored(whole):
        whole["status"] = {"storedTemplates": stored}
    wrong = [
        finding(UNSUPPORTED if problem.only_here else INVALID, problem.path, problem.message)
        for problem in (_of_templates(whole) if source.kind in TEMPLATES and lint else mistakes(whole, lint=lint))
        if problem.path not in [path for path, _ in gone]
    ]
    return found + missing + wrong


def _words(found: fields.Finding, source: Object) -> str:
    """What is wrong with a field; of a word that YAML takes for something else, what to do."""
    said = f"{dotted(found.path)}: {found.why}"
    written = (
        source.written(*path_in(source, found.path)) if found.malformed and found.why == "should be text" else None
    )
    return said if written is None else f"{said}; put {shown(written)} in quotes"


def notes(made: Submission, workflow: Mapping[str, Any]) -> list[Problem]:
    """What of a submission has no effect here, if `workflow`, with its parameters, is what runs.

    Raises ManifestError for what can't run.
    """
    found = of_workflow(workflow, made.source, Library(made.library))
    if wrong := [finding.problem for finding in found if finding.kind != NO_EFFECT]:
        raise ManifestError(sorted(wrong, key=lambda problem: problem.line))
    left_out = [each.problem(f"{each.kind} {each.name} is left out: nothing here reads it") for each in made.left_out]
    return [*left_out, *(finding.problem for finding in found)]


def _kind(found: fields.Finding) -> str:
    if found.malformed or found.why.startswith(UNKNOWN):
        return INVALID
    return UNSUPPORTED if found.refused else NO_EFFECT


def _named(workflow: Mapping[str, Any]) -> dict[str, Any]:
    """A `generateName` stands for a name that is to come."""
    metadata = workflow.get("metadata") or {}
    if metadata.get("name") or not isinstance(metadata.get("generateName"), str):
        return dict(workflow)
    return {**workflow, "metadata": {**metadata, "name": f"{metadata['generateName'][:MOST_OF_A_PREFIX]}00000"}}


def _of_templates(workflow: dict[str, Any]) -> list[Mistake]:
    """A WorkflowTemplate needs no entrypoint, and whoever refers to it brings arguments and parameters."""
    spec = workflow.get("spec") or {}
    templates = spec.get("templates") or []
    if spec.get("entrypoint") in (None, "", *(template.get("name") for template in templates)):
        spec = {**spec, "entrypoint": _NOTHING, "templates": [*templates, {"name": _NOTHING, "suspend": {}}]}
    found = mistakes({**workflow, "spec": spec}, lint=True)
    return [problem for problem in found if "failed to resolve {{workflow.parameters" not in problem.message]


def _duplicates(objects: Sequence[Object]) -> Iterator[Finding]:
    """Objects of the same kind and name in a file: of two, one would be lost."""
    seen: dict[tuple[str, str, str], Object] = {}
    for each in objects:
        if each.name and (first := seen.setdefault((each.file, each.kind, each.name), each)) is not each:
            said = f"a second {each.kind} called {each.name}; the first is on line {first.line()}"
            yield Finding(INVALID, each.problem(said, "metadata", "name"))
