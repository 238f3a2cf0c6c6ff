"""Which template a task, step or hook refers to: one of the Workflow's own, an inline one, or a WorkflowTemplate's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .calls import TemplateError
from .defaults import with_defaults
from .names import task_name
from .nodes import Node, Nodes

Template = Mapping[str, Any]

LOCAL = "local/"  # how the scope of a Workflow's own templates begins

_INLINE = "inline/"  # how the stored names of inline templates of nodes begin

_POD_KINDS = ("container", "script", "resource", "containerSet")


def is_pod(template: Template) -> bool:
    """Whether a template is run by a pod."""
    return any(template.get(kind) is not None for kind in _POD_KINDS)


def stored_name(scope: str, origin: Mapping[str, Any]) -> str:
    """The key of a template in `status.storedTemplates`, '' for one that is looked up in the Workflow itself."""
    if reference := origin.get("templateRef"):
        kind = "cluster" if reference.get("clusterScope") else "namespaced"
        return f"{kind}/{reference.get('name')}/{reference.get('template')}"
    if scope.startswith(LOCAL):
        return ""
    return f"{scope}/inline/{origin.get('name', '')}" if origin.get("inline") else f"{scope}/{origin.get('template')}"


def scope_of(scope: str, origin: Mapping[str, Any]) -> str:
    """Where the template that `origin` refers to looks up its own names."""
    return stored_name(scope, origin).rpartition("/")[0] if origin.get("templateRef") else scope


class Templates:
    """The templates of one Workflow: its own, and those that were stored when it was submitted."""

    def __init__(self, spec: Mapping[str, Any], stored: Mapping[str, Template]) -> None:
        self._defaults: Template | None = spec.get("templateDefaults")
        own = {template["name"]: template for template in spec.get("templates") or []}
        self._own = {name: with_defaults(template, self._defaults) for name, template in own.items()}
        self._stored = stored

    def find(self, scope: str, origin: Mapping[str, Any]) -> Template:
        """The template that `origin` in `scope` refers to. Raises TemplateError."""
        inline: Template | None = origin.get("inline")
        if inline:
            return with_defaults(inline, self._defaults)
        if name := stored_name(scope, origin):
            if name in self._stored:
                return with_defaults(self._stored[name], self._defaults)
            holder = name.split("/")[1]
            wanted = (origin.get("templateRef") or origin)["template"]
            if any(key.split("/")[1] == holder for key in self._stored):
                raise TemplateError(f"template {wanted} not found in workflow template {holder}")
            raise TemplateError(f"workflow template {holder} not found")
        if origin.get("template") not in self._own:
            raise TemplateError(f"template {origin.get('template')} not found")
        return self._own[origin["template"]]

    def of(self, nodes: Nodes, node: Node) -> Template:
        """The template of a node. Raises TemplateError."""
        origin = {"template": node.get("templateName"), "templateRef": node.get("templateRef")}
        if origin["template"] or origin["templateRef"]:
            return self.find(node["templateScope"], origin)
        name = node["name"]
        if node["type"] != "Retry" and (node.get("nodeFlag") or {}).get("retried"):
            name = name.rpartition("(")[0]
        kept = self._stored.get(_INLINE + name)
        return kept if kept is not None else self._written(nodes, name, node["boundaryID"])

    def keep(self, nodes: Nodes, name: str, boundary: str, inline: Template) -> Mapping[str, Template]:
        """Remembers the `inline` template of a new node if its references made it differ from what was written.

        Returns what is stored now.
        """
        if inline != self._written(nodes, name, boundary):
            self._stored = {**self._stored, _INLINE + name: inline}
        return self._stored

    def _written(self, nodes: Nodes, name: str, boundary: str) -> Template:
        """The inline template of the task or step that the node called `name` runs."""
        wanted = task_name(name)
        for task in tasks(self.of(nodes, nodes[boundary])):
            if task["name"] == wanted and task.get("inline"):
                found: Template = task["inline"]
                return found
        raise TemplateError(f"template of {name} not found")


def tasks(template: Template) -> list[Mapping[str, Any]]:
    """The tasks or steps of a template."""
    if "dag" in template:
        return list(template["dag"]["tasks"])
    return [step for group in template.get("steps") or [] for step in group]
