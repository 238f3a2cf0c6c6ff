"""Artifacts as the controller sees them: which file of which node is meant, and under what key it is kept.

An artifact is a mapping as Argo writes it. One that has been stored says `s3: {key: …}` and nothing else of where it
is: it lies in the default store, which here is a folder of the job.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from .calls import TemplateError
from .expressions import ExpressionError, evaluate, evaluate_when
from .nodes import Node, Nodes
from .templates import UnresolvedError, expand

Artifact = Mapping[str, Any]
Lookup = dict[str, Artifact]  # by what references call it: tasks.a.outputs.artifacts.b

_SUFFIX = {"none": "", "zip": ".zip"}  # of what is stored; else it is a compressed archive
_PLACE = ("s3", "raw")


def declared(holder: Mapping[str, Any] | None) -> list[Artifact]:
    """The artifacts of `inputs`, `outputs` or `arguments`."""
    return (holder or {}).get("artifacts") or []


def lookup(prefix: str, holder: Mapping[str, Any] | None) -> Lookup:
    """The artifacts of `holder` as others see them, `prefix` before their names."""
    return {f"{prefix}.artifacts.{artifact['name']}": artifact for artifact in declared(holder)}


def of_node(nodes: Nodes, prefix: str, node: Node) -> Lookup:
    """The output artifacts of a task or step; of a retried one, those of its last attempt."""
    if node["type"] == "Retry" and (attempts := nodes.attempts(node)):
        node = attempts[-1]
    return lookup(f"{prefix}.outputs", node.get("outputs"))


def paths(template: Mapping[str, Any]) -> dict[str, str]:
    """What a template's own references say of where its artifacts are: `inputs.artifacts.NAME.path`."""
    return {
        f"{side}.artifacts.{artifact['name']}.path": str(artifact["path"])
        for side in ("inputs", "outputs")
        for artifact in declared(template.get(side))
        if artifact.get("path")
    }


def resolve(call: Mapping[str, Any], known: Lookup, scope: Mapping[str, Any], *, expands: bool) -> Mapping[str, Any]:
    """A task, step or hook whose artifacts `from` elsewhere are the ones meant; as it is if it won't run.

    Raises UnresolvedError, ExpressionError.
    """
    given = declared(call.get("arguments"))
    if not any(artifact.get("from") or artifact.get("fromExpression") for artifact in given):
        return call
    try:
        if not evaluate_when(call.get("when") or ""):
            return call
    except ExpressionError:
        if not expands:  # whoever runs it will find out
            return call
    found = [
        (artifact["name"], artifact if not _refers(artifact) else _meant(artifact, known, scope)) for artifact in given
    ]
    resolved = [{**artifact, "name": name} for name, artifact in found if artifact is not None]
    return {**call, "arguments": {**call["arguments"], "artifacts": resolved}}


def bind(template: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The input artifacts of a new node. Raises TemplateError for one that has no source."""
    given = {artifact["name"]: artifact for artifact in declared(arguments)}
    bound = []
    for needed in declared(template.get("inputs")):
        argument = given.get(needed["name"])
        if not needed.get("optional") and not has_place(needed):
            if argument is None:
                raise TemplateError(f"inputs.artifacts.{needed['name']} was not supplied")
            if not has_place(argument):
                raise TemplateError(f"inputs.artifacts.{needed['name']} missing location information")
        if argument is None:
            bound.append(dict(needed))
            continue
        own = {key: needed[key] for key in ("path", "mode", "recurseMode") if key in needed}
        others = {key: value for key, value in argument.items() if key not in ("path", "mode", "recurseMode")}
        bound.append({**others, **own})
    return bound


def stored(template: Mapping[str, Any], workflow: str, pod: str) -> list[dict[str, Any]]:
    """The output artifacts of a pod, each with the key under which it is kept. Raises TemplateError for a bad key."""
    found = []
    for artifact in declared(template.get("outputs")):
        key = (artifact.get("s3") or {}).get("key") or f"{workflow}/{pod}/{_file_name(artifact)}"
        found.append({**artifact, "s3": {"key": key}})
    check_keys(found)
    return found


def check_keys(several: Iterable[Artifact]) -> None:
    """Raises TemplateError for a key that leads out of the store."""
    for artifact in several:
        key = str((artifact.get("s3") or {}).get("key") or "")
        if key.startswith("/") or ".." in key.split("/"):
            raise TemplateError(f"artifact {artifact['name']}: the key {key} leads out of the artifact store")


def outputs(template: Mapping[str, Any], known: Lookup, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The output artifacts of a DAG or steps, out of those of its tasks. Raises UnresolvedError, ExpressionError."""
    found = []
    for artifact in declared(template.get("outputs")):
        if not _refers(artifact):
            continue
        try:
            meant = _meant(artifact, known, scope)
        except UnresolvedError as error:
            raise UnresolvedError(f"unable to resolve outputs from scope: {error}") from None
        if meant is not None:
            found.append({**meant, "name": artifact["name"]})
    return found


def has_place(artifact: Artifact) -> bool:
    """Whether it is known where the artifact is."""
    return any(artifact.get(kind) for kind in _PLACE)


def _refers(artifact: Artifact) -> bool:
    return bool(artifact.get("from") or artifact.get("fromExpression"))


def _meant(artifact: Artifact, known: Lookup, scope: Mapping[str, Any]) -> Artifact | None:
    """The artifact that `from` or `fromExpression` leads to; None for an optional one that isn't there."""
    everything: Any = {**scope, **known}
    if artifact.get("fromExpression"):
        found: Any = evaluate(artifact["fromExpression"], expand(everything))
        if not isinstance(found, Mapping):
            raise UnresolvedError(f"Variable {{{{{artifact['name']}}}}} is not an artifact")
    else:
        tag = str(artifact["from"]).strip().removeprefix("{{").removesuffix("}}").strip()
        found = known.get(tag)
        if tag.startswith("="):
            found = evaluate(tag[1:], expand(everything))
        if not isinstance(found, Mapping):
            if artifact.get("optional"):
                return None
            raise UnresolvedError(f'Unable to resolve: "{tag}"')
    return _within(found, artifact["subPath"]) if artifact.get("subPath") else found


def _within(artifact: Artifact, sub_path: str) -> Artifact:
    key = (artifact.get("s3") or {}).get("key")
    return {**artifact, "s3": {"key": posixpath.join(key, sub_path)}} if key else artifact


def _file_name(artifact: Artifact) -> str:
    """What the executor calls the file in the store."""
    archive = artifact.get("archive") or {}
    if archive.get("none") is not None:
        return posixpath.basename(posixpath.normpath(str(artifact["path"])))
    return str(artifact["name"]) + next((suffix for kind, suffix in _SUFFIX.items() if kind in archive), ".tgz")
