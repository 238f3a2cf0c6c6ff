"""One pass of the controller over one Workflow: what it knows, and how it runs a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..pod import PodObservation
from . import dag, retry, steps
from .decision import PodRequest, Resource
from .expressions import ExpressionError
from .nodes import ERROR, FAILED, FULFILLED, PENDING, RUNNING, Node, Nodes, pod_name, seconds, text, timestamp
from .patches import PatchError
from .pods import build, request_template
from .scope import input_scope, workflow_scope
from .templates import UnresolvedError, substitute

MAX_DEPTH = 100
TOO_DEEP = (
    "Maximum recursion depth exceeded. "
    "See https://argo-workflows.readthedocs.io/en/latest/scaling/#maximum-recursion-depth"
)

Template = Mapping[str, Any]


class TemplateError(ValueError):
    """A template that can't be run with what it is given."""


@dataclass(frozen=True)
class Call:
    """A template to be run as the node `name`, for the DAG or steps node `boundary`."""

    name: str
    template: str
    arguments: list[dict[str, Any]] = field(default_factory=list)
    boundary: str = ""
    on_exit: bool = False
    flag: dict[str, bool] | None = None

    def child(self, name: str, template: str, arguments: list[dict[str, Any]], boundary: str) -> Call:
        return Call(name, template, arguments, boundary, self.on_exit)


class Operation:
    """The state of a pass. `nodes` collects what changes, `pods` and `resources` what is to be started."""

    def __init__(self, workflow: Mapping[str, Any], observed: Mapping[str, PodObservation], now: float) -> None:
        self.spec: Mapping[str, Any] = workflow["spec"]
        self.name: str = workflow["metadata"]["name"]
        self.now, self.observed = now, observed
        status = workflow.get("status") or {}
        self.nodes = Nodes(self.name, status.get("nodes") or {}, now)
        self.templates: dict[str, Template] = {template["name"]: template for template in self.spec["templates"]}
        self.globals = workflow_scope(workflow, now)
        self.shutdown: str = self.spec.get("shutdown") or ""
        limit = self.spec.get("activeDeadlineSeconds")
        started = seconds(status.get("startedAt")) or now
        self.deadline = None if limit is None else started + float(limit)
        self.overdue = self.deadline is not None and now > self.deadline
        self.deadline_text = "" if self.deadline is None else timestamp(self.deadline)
        self.pods: dict[str, PodRequest] = {}
        self.resources: dict[str, Resource] = {}
        self.wake: float | None = None
        self._depth = 0
        self._active: int | None = None  # pods that are wanted; counted when first asked for, after their news is in

    def wake_at(self, time: float) -> None:
        self.wake = time if self.wake is None else min(self.wake, time)

    def may_start(self, on_exit: bool) -> bool:
        """Whether a shutdown leaves pods of this kind alone."""
        return not self.shutdown or (self.shutdown == "Stop" and on_exit)

    def is_exit(self, node: Node) -> bool:
        """Whether `node` belongs to the exit handler."""
        root, name = f"{self.name}.onExit", str(node["name"])
        return name == root or name.startswith((root + "[", root + ".", root + "("))

    def execute(self, call: Call) -> Node | None:
        """Brings the node of `call` as far as it goes now. None: there is no room for its pod yet."""
        node = self.nodes.named(call.name)
        if node is not None and node["phase"] in FULFILLED:
            return node
        self._depth += 1
        try:
            if self._depth >= MAX_DEPTH:
                raise TemplateError(TOO_DEEP)
            return self._execute(call, node)
        except (TemplateError, UnresolvedError, ExpressionError) as error:
            return self._fail(call, self.nodes.named(call.name), str(error))
        finally:
            self._depth -= 1

    def _execute(self, call: Call, node: Node | None) -> Node | None:
        template = self.templates.get(call.template)
        if template is None:
            raise TemplateError(f"template name '{call.template}' undefined")
        retried = template.get("retryStrategy") or self.spec.get("retryStrategy")
        inputs = self._bind(template, call) if node is None else (node.get("inputs") or {}).get("parameters") or []
        if retried is not None:
            return retry.advance(self, call, node, template, inputs)
        return self.run(call, call.name, node, template, inputs, call.flag)

    def run(
        self,
        call: Call,
        name: str,
        node: Node | None,
        template: Template,
        inputs: list[Any],
        flag: dict[str, bool] | None,
    ) -> Node | None:
        """Runs `template` itself, past its retries, as the node `name`: the whole task, or one attempt of it."""
        if "container" in template or "resource" in template:
            return node if node is not None else self._create_pod(call, name, inputs, flag)
        kind = "DAG" if "dag" in template else "Steps"
        if node is None:
            node = self.nodes.create(
                name, kind, RUNNING,
                template=call.template, boundary=call.boundary, flag=flag, inputs={"parameters": inputs},
            )  # fmt: skip
        processed = self.process(template, node)
        execute = dag.execute if kind == "DAG" else steps.execute
        return execute(self, call, node, processed)

    def process(self, template: Template, node: Node) -> Template:
        """`template` with everything substituted that is known once its node exists."""
        inputs = (node.get("inputs") or {}).get("parameters") or []
        scope = {**self.globals, **self._locals(node, template)}
        merged = {**template, "inputs": {"parameters": inputs}} if inputs else template
        first = substitute(merged, scope)
        scope |= input_scope(inputs)
        for output in (template.get("outputs") or {}).get("parameters") or []:
            if (output.get("valueFrom") or {}).get("path"):
                scope[f"outputs.parameters.{output['name']}.path"] = output["valueFrom"]["path"]
        processed: Template = substitute(first, scope)
        return processed

    def strategy(self, template: Template, node: Node) -> Mapping[str, Any]:
        """The retry strategy of a Retry node, substituted."""
        strategy = template.get("retryStrategy") or self.spec["retryStrategy"]
        scope = {**self.globals, **input_scope((node.get("inputs") or {}).get("parameters") or [])}
        processed: Mapping[str, Any] = substitute(strategy, scope)
        return processed

    def request(self, node: Node) -> None:
        """Asks for the pod of `node`, unless it has none to ask for: then the node is an Error."""
        try:
            template = request_template(self.spec, self.name, self.templates[node["templateName"]])
            wanted = build(node, self.pod_name(node), self.process(template, node))
        except (PatchError, UnresolvedError, ExpressionError) as error:
            self.nodes.mark(node, ERROR, str(error))
            return
        if isinstance(wanted, Resource):
            self.resources[node["id"]] = wanted
        else:
            self.pods[node["id"]] = wanted

    def pod_name(self, node: Node) -> str:
        if node["name"] == self.name:
            return self.name
        # ids and pod names end in the same hash of the node's name
        return pod_name(self.name, node["name"], node.get("templateName", ""), node["id"].rpartition("-")[2])

    def _create_pod(self, call: Call, name: str, inputs: list[Any], flag: dict[str, bool] | None) -> Node | None:
        if not self._room():
            return None
        node = self.nodes.create(
            name, "Pod", PENDING,
            template=call.template, boundary=call.boundary, flag=flag, inputs={"parameters": inputs},
        )  # fmt: skip
        if not self.may_start(call.on_exit):
            return self.nodes.mark(node, FAILED, f"workflow shutdown with strategy: {self.shutdown}")
        if self.overdue and not call.on_exit:
            return self.nodes.mark(node, FAILED, "Step exceeded its deadline")
        self.request(node)
        return self.nodes[node["id"]]

    def _room(self) -> bool:
        """Whether `spec.parallelism` allows one more pod, which is then counted."""
        limit = self.spec.get("parallelism")
        if limit is None:
            return True
        if self._active is None:
            self._active = sum(n["type"] == "Pod" and n["phase"] in (PENDING, RUNNING) for n in self.nodes)
        if self._active >= int(limit):
            return False
        self._active += 1
        return True

    def _bind(self, template: Template, call: Call) -> list[Any]:
        """The input parameters of a new node. Raises TemplateError for one without a value."""
        given = {argument["name"]: argument["value"] for argument in call.arguments if "value" in argument}
        inputs = []
        for declared in (template.get("inputs") or {}).get("parameters") or []:
            own = declared.get("value", declared.get("default"))
            value = given.get(declared["name"], own)
            if value is None:
                raise TemplateError(f"inputs.parameters.{declared['name']} was not supplied")
            inputs.append({**declared, "value": text(value)})
        bound: list[Any] = substitute(inputs, {**self.globals, "node.name": call.name})
        return bound

    def _locals(self, node: Node, template: Template) -> dict[str, str]:
        """`node.name`, `pod.name`, `tasks.name` or `steps.name`, and for attempts `retries` and `lastRetry.*`."""
        name, display = node["name"], node["displayName"]
        scope = {}
        if "container" in template or "resource" in template:
            scope["pod.name"] = self.pod_name(node)
        if (node.get("nodeFlag") or {}).get("retried"):
            name, _, number = name.removesuffix(")").rpartition("(")
            display = display.rpartition("(")[0]
            previous = self.nodes.named(f"{name}({int(number) - 1})")
            scope |= retry.attempt_scope(previous, int(number))
        holder = self.nodes.get(node.get("boundaryID", ""))
        if holder is not None:
            scope["tasks.name" if holder["type"] == "DAG" else "steps.name"] = display
        return {**scope, "node.name": name}

    def _fail(self, call: Call, node: Node | None, message: str) -> Node:
        if node is not None:
            return self.nodes.mark(node, ERROR, message)
        return self.nodes.create(
            call.name, "Skipped", ERROR,
            template=call.template, boundary=call.boundary, flag=call.flag, message=message,
        )  # fmt: skip
