"""Checks of templates that run a pod, or wait."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..paths import Path, dotted
from .problem import Problem, Template, artifacts, named, parameters

_ACTIONS = ("get", "create", "apply", "delete", "replace", "patch")
_TAKES_A_MANIFEST = ("create", "apply", "replace", "patch")
_REFERENCE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CONTAINERS = ("initContainers", "sidecars")


def check(spec: Mapping[str, Any], template: Template, path: Path) -> Iterator[Problem]:
    where = f"templates.{template.get('name', '')}"
    if template.get("container") is not None:
        yield from _mounts(template, where, path)
        yield from _image(spec, "container", template, where, path)
    if template.get("containerSet") is not None:
        yield from _container_set(template, where, path)
    if template.get("resource") is not None:
        yield from _resource(template["resource"], where, (*path, "resource"))
    if template.get("script") is not None:
        yield from _image(spec, "script", template, where, path)
    yield from _limits(template, where, path)
    yield from _commands(spec, template, where, path)
    yield from _volumes(spec, template, where, path)


def _image(spec: Mapping[str, Any], kind: str, template: Template, where: str, path: Path) -> Iterator[Problem]:
    defaults = ((spec.get("templateDefaults") or {}).get(kind) or {}).get("image")
    if not template[kind].get("image") and not defaults:
        yield Problem((*path, kind), f"{where}.{kind}.image may not be empty")


def _commands(spec: Mapping[str, Any], template: Template, where: str, path: Path) -> Iterator[Problem]:
    """Argo looks an image's own command up; here nothing is pulled."""
    defaults = spec.get("templateDefaults") or {}
    for at, container in _containers(template):
        if at == ("containerSet",) or container.get("command") or (defaults.get(at[0]) or {}).get("command"):
            continue
        image = container.get("image") or "an image"
        why = f"the command of {image} is not known here, nothing is pulled"
        yield Problem((*path, *at), f"{where}.{dotted(at)}.command may not be empty: {why}", ours=True, only_here=True)


def _containers(template: Template) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """All that may have a command or mounts in a template, and where."""
    for kind in ("container", "script", "containerSet"):
        if template.get(kind):
            yield (kind,), template[kind]
    for kind in _CONTAINERS:
        for index, container in enumerate(template.get(kind) or []):
            yield (kind, index), container
    for index, container in enumerate((template.get("containerSet") or {}).get("containers") or []):
        yield ("containerSet", "containers", index), container


def _mounts(template: Template, where: str, path: Path) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for index, mount in enumerate(template["container"].get("volumeMounts") or []):
        file, at = mount.get("mountPath") or "", ("container", "volumeMounts", index)
        if file in taken:
            said = f"container.volumeMounts[{index}].mountPath '{file}' already mounted in {taken[file]}"
            yield Problem((*path, *at, "mountPath"), f"{where}.{said}")
        taken[file] = f"container.volumeMounts.{mount.get('name', '')}"
    for index, artifact in enumerate(artifacts(template, "inputs")):
        file = artifact.get("path") or ""
        if file in taken:
            said = f"inputs.artifacts[{index}].path '{file}' already mounted in {taken[file]}"
            yield Problem((*path, "inputs", "artifacts", index, "path"), f"{where}.{said}")
        taken[file] = f"inputs.artifacts.{artifact.get('name', '')}"


def _container_set(template: Template, where: str, path: Path) -> Iterator[Problem]:
    where, path = f"{where}.containerSet", (*path, "containerSet")
    containers = template["containerSet"].get("containers") or []
    if not containers:
        yield Problem(path, f"{where}.containers must have at least one container")
        return
    wrong = list(named(containers, f"{where}.containers", (*path, "containers")))
    yield from wrong
    if wrong:
        return
    waits_for = {container["name"]: container.get("dependencies") or [] for container in containers}
    for index, (name, others) in enumerate(waits_for.items()):
        for other in others:
            if other not in waits_for:
                at = (*path, "containers", index, "dependencies")
                yield Problem(at, f"{where}.containers.{name} dependency '{other}' not defined")
    if cycle := _cycle(waits_for):
        message = f"{where}.containers dependency cycle detected: {'->'.join(cycle)}"
        yield Problem((*path, "containers"), message)
    hands_over = artifacts(template, "inputs") or parameters(template, "outputs") or artifacts(template, "outputs")
    if hands_over and "main" not in waits_for:
        said = 'must have a container named "main" for input or output'
        yield Problem((*path, "containers"), f"{where}.containers {said}")


def _cycle(waits_for: Mapping[str, list[str]]) -> list[str]:
    """A cycle as Argo spells it, its first name repeated at the end; [] if there is none."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        for other in waits_for.get(name, []) if name not in done else ():
            if other in way:
                return [*way, other]
            if found := walk(other, [*way, other]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(waits_for) if (found := walk(name, []))), [])


def _resource(resource: Mapping[str, Any], where: str, path: Path) -> Iterator[Problem]:
    action = str(resource.get("action") or "")
    if "{{" not in action and action not in _ACTIONS:
        yield Problem((*path, "action"), f"{where}.resource.action must be one of: {', '.join(_ACTIONS)}")
    if action not in _TAKES_A_MANIFEST:
        return
    manifest, elsewhere = resource.get("manifest"), resource.get("manifestFrom")
    if not manifest and elsewhere is None:
        said = f"either {where}.resource.manifest or {where}.resource.manifestFrom must be specified"
        yield Problem(path, said)
    elif manifest and elsewhere is not None:
        said = "shouldn't have both `manifest` and `manifestFrom` specified in `Manifest` for resource template"
        yield Problem((*path, "manifestFrom"), said)
    elif manifest and not _readable(manifest):
        yield Problem((*path, "manifest"), f"{where}.resource.manifest must be a valid yaml")


def _readable(manifest: str) -> bool:
    import yaml  # rare, and a start-up cost

    try:
        yaml.compose(_REFERENCE.sub("reference", manifest), yaml.SafeLoader)
    except yaml.YAMLError:
        return False
    return True


def _limits(template: Template, where: str, path: Path) -> Iterator[Problem]:
    deadline = str(template.get("activeDeadlineSeconds", 0))
    if not re.fullmatch(r"\+?\d+", deadline) and not (deadline.startswith("{{") and deadline.endswith("}}")):
        said = "activeDeadlineSeconds must be a positive integer > 0 or an argo variable"
        yield Problem((*path, "activeDeadlineSeconds"), f"{where}.{said}")
    if template.get("parallelism") is not None:
        said = "parallelism is only valid for steps and dag templates"
        yield Problem((*path, "parallelism"), f"{where}.{said}")


def _volumes(spec: Mapping[str, Any], template: Template, where: str, path: Path) -> Iterator[Problem]:
    """Argo finds these when it makes the pod."""
    known = {volume.get("name") for volume in [*(spec.get("volumes") or []), *(template.get("volumes") or [])]}
    known |= {(claim.get("metadata") or {}).get("name") for claim in spec.get("volumeClaimTemplates") or []}
    for at, container in _containers(template):
        for index, mount in enumerate(container.get("volumeMounts") or []):
            if mount.get("name") not in known and "{{" not in str(mount.get("name")):
                place = (*path, *at, "volumeMounts", index, "name")
                yield Problem(place, f"{where}: volume '{mount.get('name')}' not found in workflow spec", ours=True)
