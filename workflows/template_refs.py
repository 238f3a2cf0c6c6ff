"""WorkflowTemplates: what a Workflow takes from them, so that it can run when they are no longer there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .objects import PathPart
from .shapes import mapping, mappings

CLUSTER_KIND = "ClusterWorkflowTemplate"
Path = tuple[PathPart, ...]
Spec = Mapping[str, Any]


class Library:
    """WorkflowTemplates and ClusterWorkflowTemplates, plain objects, found by name."""

    def __init__(self, objects: Sequence[Mapping[str, Any]] = ()) -> None:
        self._specs: dict[tuple[bool, str], Spec] = {}
        for each in objects:
            name = str(mapping(each.get("metadata")).get("name") or "")
            self._specs[each.get("kind") == CLUSTER_KIND, name] = mapping(each.get("spec"))

    def spec(self, reference: Mapping[str, Any]) -> Spec | None:
        """The spec that `{name, clusterScope}` refers to, if it is there."""
        return self._specs.get((bool(reference.get("clusterScope")), str(reference.get("name") or "")))

    def template(self, reference: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The template that a `templateRef` refers to, if it is there."""
        spec = self.spec(reference) or {}
        return next((t for t in mappings(spec.get("templates")) if t.get("name") == reference.get("template")), None)

    def stored(self, workflow: Mapping[str, Any]) -> dict[str, Any]:
        """`status.storedTemplates`: all templates of what the Workflow refers to, and of what that refers to."""
        found: dict[str, Any] = {}
        wanted = [reference for _, reference in references(mapping(workflow.get("spec")))]
        done: set[tuple[bool, str]] = set()
        while wanted:
            reference = wanted.pop()
            key = bool(reference.get("clusterScope")), str(reference.get("name") or "")
            spec = self.spec(reference)
            if key in done or spec is None:
                continue
            done.add(key)
            kind = "cluster" if key[0] else "namespaced"
            found |= {f"{kind}/{key[1]}/{t['name']}": t for t in mappings(spec.get("templates")) if t.get("name")}
            wanted += [inner for _, inner in references(spec)]
        return found

    def joined(self, workflow: Mapping[str, Any]) -> dict[str, Any]:
        """A Workflow whose `workflowTemplateRef` is there, as if it had that spec written out: its own comes first."""
        own = {key: value for key, value in mapping(workflow.get("spec")).items() if value not in (None, "", [], {})}
        theirs = self.spec(mapping(own.get("workflowTemplateRef")))
        if not own.get("workflowTemplateRef") or theirs is None:
            return dict(workflow)
        spec = {**theirs, **own}
        del spec["workflowTemplateRef"]
        for key in ("templates", "volumes", "volumeClaimTemplates"):
            if own.get(key) and theirs.get(key):
                spec[key] = _merged(own[key], theirs[key])
        arguments, given = mapping(theirs.get("arguments")), mapping(own.get("arguments"))
        if arguments and given:
            spec["arguments"] = {
                key: _merged(given.get(key) or [], arguments.get(key) or []) for key in {**arguments, **given}
            }
        for key in ("hooks", "workflowMetadata"):
            if own.get(key) and theirs.get(key):
                spec[key] = {**mapping(theirs[key]), **mapping(own[key])}
        return {**workflow, "spec": spec}

    def missing(self, workflow: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """References of the Workflow that lead nowhere: path and message."""
        spec = mapping(workflow.get("spec"))
        reference = mapping(spec.get("workflowTemplateRef"))
        if reference and self.spec(reference) is None:
            yield ("spec", "workflowTemplateRef"), _unknown(reference)
        for path, inner in references(spec):
            where = ("spec", *path)
            if self.spec(inner) is None:
                yield where, _unknown(inner)
            elif self.template(inner) is None:
                yield where, f"template {inner.get('template')} not found in workflow template {inner.get('name')}"


def _unknown(reference: Mapping[str, Any]) -> str:
    return f"workflow template {reference.get('name')} not found; put it in the file, or name its folder (--templates)"


def references(value: Any, path: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every `templateRef` in a spec, with the way to it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "templateRef" and isinstance(inner, Mapping):
                yield (*path, key), inner
            elif isinstance(inner, Mapping | list):
                yield from references(inner, (*path, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from references(inner, (*path, index))


def _merged(own: Any, theirs: Any) -> list[Any]:
    """Lists of named items: each name once."""
    names = {mapping(item).get("name") or mapping(mapping(item).get("metadata")).get("name") for item in own}
    return [*own, *(item for item in mappings(theirs) if item.get("name") not in names)]
