"""From the objects of a user's files to one Argo Workflow that can be submitted, and what it needs beside it."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import ManifestError, Problem, listed, nearest, shown
from .objects import Object, PathPart
from .shapes import mapping, mappings
from .template_refs import Library

WORKFLOW, CRON_WORKFLOW = "Workflow", "CronWorkflow"
TEMPLATES = ("WorkflowTemplate", "ClusterWorkflowTemplate")
RUNNABLE = (WORKFLOW, CRON_WORKFLOW, *TEMPLATES)
CONFIG_MAP, SECRET = "ConfigMap", "Secret"
KINDS = (*RUNNABLE, CONFIG_MAP, SECRET)
API_VERSION = "argoproj.io/v1alpha1"
_REFERENCE = re.compile(r"workflow\.parameters\.([-\w]+)")

Path = tuple[PathPart, ...]


@dataclass(frozen=True)
class Submission:
    """A Workflow, the objects that it reads (contents by key, by name), and the files' other objects.

    `source` is what it was made of: a Workflow, or the object whose spec it has.
    """

    workflow: dict[str, Any]
    source: Object
    config_maps: dict[str, dict[str, bytes]] = field(default_factory=dict)
    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    templates: list[Object] = field(default_factory=list)
    left_out: list[Object] = field(default_factory=list)

    @property
    def library(self) -> list[dict[str, Any]]:
        """The WorkflowTemplates as plain objects."""
        return [each.value for each in self.templates]


def path_in(source: Object, path: Path) -> Path:
    """Where the value that `path` leads to in a Workflow stands in the object that the Workflow is made of."""
    if path[:1] != ("spec",):
        return path if source.kind == WORKFLOW else ("metadata",)
    return (*(("spec", "workflowSpec") if source.kind == CRON_WORKFLOW else ("spec",)), *path[1:])


def runnable(objects: Sequence[Object]) -> list[Object]:
    """Those that can be run: the Workflows (a CronWorkflow has one); where there is none, the templates."""
    workflows = [each for each in objects if each.kind in (WORKFLOW, CRON_WORKFLOW)]
    return workflows or [each for each in objects if each.kind in TEMPLATES]


def submission(objects: Sequence[Object], beside: Sequence[Object] = (), place: str = "the file") -> Submission:
    """What there is to submit in `objects`, of which one must be a Workflow, a CronWorkflow or a WorkflowTemplate.

    `beside` are further objects that it may use, `place` is what messages call where `objects` come from. Raises
    ManifestError.
    """
    source = _the_one(objects, place)
    others = [each for each in [*objects, *beside] if each is not source or each.kind in TEMPLATES]
    config_maps = {each.name: config_map(each) for each in others if each.kind == CONFIG_MAP}
    secrets = {each.name: secret(each) for each in others if each.kind == SECRET}
    templates = [each for each in others if each.kind in TEMPLATES]
    left_out = [each for each in others if each.kind not in KINDS]
    workflow = Library([each.value for each in templates]).joined(as_workflow(source))
    return Submission(workflow, source, config_maps, secrets, templates, left_out)


def _the_one(objects: Sequence[Object], place: str) -> Object:
    found = runnable(objects)
    if len(found) == 1:
        return found[0]
    if found:
        words = "{} {} is one of {} that can be run; keep the one wanted in a file of its own"
        raise ManifestError([e.problem(words.format(e.kind, e.name or "(without a name)", len(found))) for e in found])
    kinds = ", ".join(sorted({each.kind for each in objects})) or "nothing"
    raise ManifestError([Problem(place, 0, f"has no Workflow to run; there is {kinds}")])


def as_workflow(source: Object) -> dict[str, Any]:
    """The Workflow that one of RUNNABLE is, or that has its spec."""
    value = source.value
    if source.kind == WORKFLOW:
        return value
    spec = value.get("spec")
    metadata: Any = {}
    if isinstance(spec, dict):
        metadata = spec.get("workflowMetadata") or {}
        spec = spec.get("workflowSpec") if source.kind == CRON_WORKFLOW else _without(spec, "workflowMetadata")
    kept = {key: metadata[key] for key in ("labels", "annotations") if isinstance(metadata, dict) and metadata.get(key)}
    return {
        "apiVersion": value.get("apiVersion", API_VERSION),
        "kind": WORKFLOW,
        "metadata": {"generateName": f"{source.name}-", **kept},
        "spec": spec,
    }


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def config_map(source: Object) -> dict[str, bytes]:
    """Its contents by key. Raises ManifestError."""
    texts = {key: _text(source, "data", key, value) for key, value in _entries(source, "data").items()}
    files = {key: _decoded(source, "binaryData", key, value) for key, value in _entries(source, "binaryData").items()}
    return _files(source, texts | files)


def secret(source: Object) -> dict[str, bytes]:
    """Its contents by key. Raises ManifestError."""
    files = {key: _decoded(source, "data", key, value) for key, value in _entries(source, "data").items()}
    texts = {key: _text(source, "stringData", key, value) for key, value in _entries(source, "stringData").items()}
    return _files(source, files | texts)


def _entries(source: Object, key: str) -> dict[str, Any]:
    entries = source.value.get(key) or {}
    if not isinstance(entries, dict):
        raise ManifestError([source.problem(f"{key} should be a map of names to text", key)])
    return entries


def _text(source: Object, holder: str, key: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise ManifestError([source.problem(f"{shown(key)} should be text; put the value in quotes", holder, key)])
    return value.encode()


def _decoded(source: Object, holder: str, key: str, value: Any) -> bytes:
    try:
        return base64.b64decode("".join(str(value).split()), validate=True)
    except (binascii.Error, ValueError):
        hint = "; plain text belongs in stringData" if source.kind == SECRET else ""
        raise ManifestError([source.problem(f"{shown(key)} is not base64{hint}", holder, key)]) from None


def _files(source: Object, files: dict[str, bytes]) -> dict[str, bytes]:
    """Keys become names of files, so none may lead elsewhere."""
    for key in (*files, source.name):
        if not re.fullmatch(r"[-._a-zA-Z0-9]+", key) or key in (".", ".."):
            raise ManifestError([source.problem(f"{shown(key)} is no name of a {source.kind} or of a key in it")])
    return files


def with_parameters(workflow: Mapping[str, Any], given: Mapping[str, str], entrypoint: str | None) -> dict[str, Any]:
    """`workflow` with these values of its parameters, and another `entrypoint` unless None. Raises ValueError.

    A parameter must be one of the Workflow's arguments, an input of its entrypoint, or be referred to: a value that
    nobody reads is a slip of the pen. What is malformed stays as it is: it is for others to say so.
    """
    spec = mapping(workflow.get("spec"))
    if entrypoint is not None:
        names = [str(template.get("name")) for template in mappings(spec.get("templates"))]
        if entrypoint not in names:
            raise ValueError(f"--entrypoint {entrypoint}: the Workflow has no such template{_meant(entrypoint, names)}")
        spec["entrypoint"] = entrypoint
    if given:
        arguments = mapping(spec.get("arguments"))
        declared = mappings(arguments.get("parameters"))
        names = [str(parameter.get("name")) for parameter in declared]
        known = list(dict.fromkeys([*names, *_read_elsewhere(spec)]))
        for name in given:
            if name not in known:
                raise ValueError(f"-p {name}: the Workflow has no such parameter{_meant(name, known)}")
        kept = [_valued(each, given) for each in declared]
        added = [{"name": name, "value": value} for name, value in given.items() if name not in names]
        spec["arguments"] = {**arguments, "parameters": kept + added}
    return {**workflow, "spec": spec} if entrypoint is not None or given else dict(workflow)


def _valued(parameter: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    if parameter.get("name") not in given:
        return dict(parameter)
    return {**_without(parameter, "valueFrom"), "value": given[str(parameter["name"])]}


def _read_elsewhere(spec: Mapping[str, Any]) -> list[str]:
    """Parameters that are no arguments of the Workflow but inputs of its entrypoint, or are referred to."""
    names: list[str] = []
    for template in mappings(spec.get("templates")):
        if template.get("name") == spec.get("entrypoint"):
            inputs = mappings(mapping(template.get("inputs")).get("parameters"))
            names += [str(each.get("name")) for each in inputs]
    return names + sorted(set(_REFERENCE.findall(json.dumps(spec, default=str))))


def _meant(name: str, known: Sequence[str]) -> str:
    if not known:
        return "; it has none"
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else f"; there are {listed(known)}"


def parameter_text(value: Any) -> str:
    """A value of a file as the text that Argo makes of it: what is no scalar as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
