"""What runs in a template's pod; and the nodes of a container set, one for each of its containers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..pod import PodObservation
from .nodes import Node, Nodes
from .phases import ERROR, FAILED, FULFILLED, PENDING, RUNNING, SUCCEEDED

MAIN = "main"
NOT_RUN = 64  # the exit code with which the executor says that it could not run the command
Template = Mapping[str, Any]


def mains(template: Template) -> list[tuple[str, Mapping[str, Any]]]:
    """The main containers of a template and their names, the mounts of a set's own in each."""
    if template.get("containerSet") is not None:
        shared = template["containerSet"].get("volumeMounts") or []
        containers = template["containerSet"].get("containers") or []
        return [(c["name"], {**c, "volumeMounts": [*(c.get("volumeMounts") or []), *shared]}) for c in containers]
    return [(MAIN, template[kind]) for kind in ("container", "script") if template.get(kind) is not None]


def everything(template: Template) -> list[Mapping[str, Any]]:
    """All containers of a template's pod."""
    others = [*(template.get("initContainers") or []), *(template.get("sidecars") or [])]
    return [*(container for _, container in mains(template)), *others]


def create(nodes: Nodes, pod: Node, template: Template) -> None:
    """Makes the nodes of a container set, children of those that they wait for."""
    several = (template.get("containerSet") or {}).get("containers") or []
    origin = {
        key: pod[field] for key, field in (("template", "templateName"), ("templateRef", "templateRef")) if field in pod
    }
    for each in several:
        name = f"{pod['name']}.{each['name']}"
        flag = pod.get("nodeFlag")
        nodes.create(
            name, "Container", PENDING, origin=origin, scope=pod["templateScope"], boundary=pod["id"], flag=flag
        )
    for each in several:
        node = nodes.named(f"{pod['name']}.{each['name']}")
        for other in each.get("dependencies") or [""]:
            parent = nodes.named(f"{pod['name']}.{other}") if other else pod
            if node is not None and parent is not None:
                nodes.adopt(nodes[parent["id"]], node["id"])


def update(nodes: Nodes, node: Node, template: Template, pod: PodObservation) -> None:
    """Tells the nodes of a container set what is known of its containers."""
    for each in (template.get("containerSet") or {}).get("containers") or []:
        name = each["name"]
        container, end = nodes.named(f"{node['name']}.{name}"), pod.containers.get(name)
        if container is None or container["phase"] in FULFILLED:
            continue
        if end is not None and end.exit_code == 0:
            nodes.mark(container, SUCCEEDED)
        elif end is not None:
            message = f"{name}: {end.reason} (exit code {end.exit_code}): {end.detail}"
            nodes.mark(container, ERROR if end.exit_code == NOT_RUN else FAILED, message)
        elif pod.phase == FAILED:
            nodes.mark(container, FAILED, "Pod Failed whilst container running")
        elif pod.phase == ERROR:
            nodes.mark(container, ERROR, "container deleted")
        elif pod.phase == RUNNING:
            nodes.mark(container, RUNNING)
