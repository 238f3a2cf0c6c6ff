"""What a Workflow's containers want and this machine doesn't have: programs that an image would bring, and, where the
kernel gives no namespaces, paths of their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .environment import is_ours
from .operator.artifacts import declared
from .operator.containers import Template, everything, mains
from .operator.resolution import tasks


def missing(workflow: Mapping[str, Any], path: str) -> list[str]:
    """What the templates that may run want and is not found, by template and image. `path` is that of the commands.

    A program that a volume or an artifact may bring, or whose name is known only later, is not looked for.
    """
    found: dict[str, None] = {}
    for template in _reached(workflow):
        for container in everything(template):
            program = _wanted(container)
            if program and not is_ours(container) and not _there(program, template, container, path):
                said = f"templates.{template.get('name', '')}: {program} is not on this machine"
                found[f"{said}, and nothing is pulled: of {container.get('image')} only the name is known"] = None
    return list(found)


def unplaceable(workflow: Mapping[str, Any]) -> list[str]:
    """The templates that may run with volumes or files at paths of their own, and the first such path of each."""
    found = []
    for template in _reached(workflow):
        mounts = [mount["mountPath"] for each in everything(template) for mount in each.get("volumeMounts") or []]
        mounts += [artifact.get("path") or "" for artifact in declared(template.get("inputs"))]
        if mounts and not any(is_ours(container) for container in everything(template)):
            found.append(f"templates.{template.get('name', '')}: nothing can be mounted at {mounts[0]} here")
    return found


def _wanted(container: Mapping[str, Any]) -> str:
    command = [*(container.get("command") or []), *(container.get("args") or [])]
    return "" if not command or "{{" in command[0] or "$(" in command[0] else command[0]


def _there(program: str, template: Template, container: Mapping[str, Any], path: str) -> bool:
    if not program.startswith("/"):
        own = [v.get("value") for v in container.get("env") or [] if v.get("name") == "PATH"]
        # a path of the container's own may lead into a volume; so may a relative one
        return bool(own) or "/" in program or shutil.which(program, path=path) is not None
    mounts = [mount["mountPath"] for mount in container.get("volumeMounts") or []]
    mounts += [mount["mountPath"] for _, main in mains(template) for mount in main.get("volumeMounts") or []]
    brought = [*mounts, *(artifact.get("path") or "" for artifact in declared(template.get("inputs")))]
    return any(program.startswith(place) for place in brought if place) or os.access(program, os.X_OK)


def _reached(workflow: Mapping[str, Any]) -> Iterator[Template]:
    """The templates that the Workflow may come to, each once."""
    status = workflow.get("status") or {}
    spec = status.get("storedWorkflowTemplateSpec") or workflow["spec"]
    known = {template["name"]: template for template in spec.get("templates") or []}
    queue = [*_called({**spec, "template": spec.get("entrypoint")})]
    yield from (status.get("storedTemplates") or {}).values()
    seen: set[str] = set()
    while queue:
        name = queue.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        yield known[name]
        inner = [known[name]]
        while inner:
            for task in tasks(inner.pop()):
                queue += _called(task)
                if task.get("inline"):
                    inner.append(task["inline"])
                    yield task["inline"]


def _called(caller: Mapping[str, Any]) -> Iterable[str]:
    """The names of the templates that a task, a step or the spec runs."""
    hooks = [hook.get("template") for hook in (caller.get("hooks") or {}).values()]
    return [name for name in (caller.get("template"), caller.get("onExit"), *hooks) if name]
