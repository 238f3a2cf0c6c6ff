"""One pass of the controller over one Workflow: what it knows, and how it runs a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..pod import PodObservation
from . import artifacts, containers, daemons, dag, deadlines, parallelism, retry, steps, suspension
from .calls import Call, TemplateError, TooDeepError
from .decision import PodRequest, Resource
from .expressions import ExpressionError
from .jsontext import text
from .names import display_name, node_id, pod_name, seconds
from .nodes import Node, Nodes
from .outputs import publish
from .patches import PatchError
from .phases import ERROR, FAILED, FULFILLED, PENDING, RUNNING
from .pods import build, request_template, result_is_wanted
from .resolution import Template, Templates, is_pod
from .scope import input_scope, workflow_scope
from .templates import UnresolvedError, has_expression, substitute

MAX_DEPTH = 100
TOO_DEEP = (
    "Maximum recursion depth exceeded. "
    "See https://argo-workflows.readthedocs.io/en/latest/scaling/#maximum-recursion-depth"
)
_CHANGING = ("workflow.status", "workflow.duration", "workflow.failures", "workflow.outputs.")

T = TypeVar("T")


class Memory:
    """What one pass worked out and the next would work out again. Without it a pass does the same, only slower."""

    def __init__(self) -> None:
        self.nodes: Nodes | None = None
        self.prepared: dict[str, dict[str, Any]] = {}  # by the id of the node that it is for
        self.told: dict[str, PodObservation] = {}  # what nodes that live know of their pods

    def nodes_of(self, workflow: str, nodes: Mapping[str, Node], now: float) -> Nodes:
        """The nodes for a pass over `nodes`; all else is forgotten if the pass before came to something different."""
        if self.nodes is not None and self.nodes.to_dict() is not nodes:
            self.nodes = None
            self.prepared.clear()
            self.told.clear()
        self.nodes = Nodes(workflow, nodes, now, self.nodes)
        return self.nodes


class Operation:
    """The state of a pass. `nodes` collects what changes, `pods` and `resources` what is to be started."""

    def __init__(
        self,
        workflow: Mapping[str, Any],
        status: dict[str, Any],
        observed: Mapping[str, PodObservation],
        now: float,
        memory: Memory,
    ) -> None:
        self.name: str = workflow["metadata"]["name"]
        self.status, self.now, self.observed = status, now, observed
        self.spec: Mapping[str, Any] = workflow["spec"]
        self.scope = f"local/{self.name}"
        self.memory = memory
        self.nodes = memory.nodes_of(self.name, status.get("nodes") or {}, now)
        self.templates = Templates(self.spec, status.get("storedTemplates") or {})
        self.globals = workflow_scope({**workflow, "status": status}, now)
        self.shutdown: str = self.spec.get("shutdown") or ""
        limit = self.spec.get("activeDeadlineSeconds")
        started = seconds(status.get("startedAt")) or now
        self.deadline = None if limit is None else started + float(limit)
        self.overdue = self.deadline is not None and now > self.deadline
        self.cut: set[str] = set()  # nodes of pods that a shutdown ends in this pass: their DAG may end with it
        self.pods: dict[str, PodRequest] = {}
        self.resources: dict[str, Resource] = {}
        self.wake: float | None = None
        self._depth = 0

    def wake_at(self, time: float) -> None:
        self.wake = time if self.wake is None else min(self.wake, time)

    def may_start(self, on_exit: bool) -> bool:
        """Whether a shutdown leaves pods of this kind alone."""
        return not self.shutdown or (self.shutdown == "Stop" and on_exit)

    def execute(self, call: Call) -> Node:
        """Brings the node of `call` as far as it goes now. Raises NoRoomError, TemplateError and its like."""
        node = self.nodes.named(call.name)
        if node is not None and node["phase"] in FULFILLED:
            return node
        self._depth += 1
        try:
            if self._depth >= MAX_DEPTH:
                raise TooDeepError(TOO_DEEP)
            template = self._template(call, node)
            inputs = self._bind(template, call) if node is None else node.get("inputs") or {}
            if node is None:
                self._try(template, call, inputs)
            deadlines.check_pending(self, template, node)
            parallelism.check(self, template, node, call.boundary)
            if self._retries(template) is not None:
                return retry.advance(self, call, node, template, inputs)
            return self.run(call, call.name, node, template, inputs, call.flag)
        except (TemplateError, UnresolvedError, ExpressionError, TooDeepError) as error:
            self._fail(call, self.nodes.named(call.name), str(error))
            if isinstance(error, (TemplateError, TooDeepError)):
                raise
            raise TemplateError(str(error)) from None
        finally:
            self._depth -= 1

    def run(
        self,
        call: Call,
        name: str,
        node: Node | None,
        template: Template,
        inputs: Mapping[str, Any],
        flag: Mapping[str, bool] | None,
    ) -> Node:
        """Runs `template` itself, past its retries, as the node `name`: the whole task, or one attempt of it.

        Raises TemplateError; the node is an Error then.
        """
        if is_pod(template):
            if node is None:
                node = self._create(call, name, "Pod", PENDING, inputs, flag)
                if not template.get("daemon"):
                    node["taskResultSynced"] = True
                self._start(call, node)
                containers.create(self.nodes, node, template)
            return self.nodes[node["id"]]
        if "suspend" in template:
            if node is None:
                node = self._create(call, name, "Suspend", PENDING, inputs, flag)
            return self._guarded(node, lambda made: suspension.advance(self, made, self.process(template, made)))
        kind, advance = ("DAG", dag.execute) if "dag" in template else ("Steps", steps.execute)
        if node is None:
            if not template.get("dag") and not template.get("steps"):
                raise TemplateError(f"Template '{template.get('name', '')}' missing specification")
            node = self._create(call, name, kind, RUNNING, inputs, flag)
        node = self._guarded(node, lambda made: advance(self, call, made, template))
        if node["phase"] in FULFILLED:
            daemons.kill(self, node["id"])
            self.forget(node)
        return node

    def remember(self, node: Node, what: str, make: Callable[[], T]) -> T:
        """What `make` makes for `node`, made once; kept until `forget`."""
        kept = self.memory.prepared.setdefault(node["id"], {})
        if what not in kept:
            kept[what] = make()
        found: T = kept[what]
        return found

    def forget(self, node: Node) -> None:
        self.memory.prepared.pop(node["id"], None)

    def process(self, template: Template, node: Node) -> Template:
        """`template` with everything substituted that is known once its node exists."""
        return self._process(template, node, self.globals)

    def process_body(self, template: Template, node: Node) -> Template:
        """As `process`, for the tasks of a DAG or steps: what may still change stays until each of them starts."""
        lasting = {name: value for name, value in self.globals.items() if not name.startswith(_CHANGING)}
        return self._process(template, node, lasting)

    def strategy(self, template: Template, node: Node) -> Mapping[str, Any]:
        """The retry strategy of a Retry node, substituted."""
        strategy = self._retries(template) or {}
        scope = {**self.globals, **input_scope((node.get("inputs") or {}).get("parameters") or [])}
        processed: Mapping[str, Any] = substitute(strategy, scope)
        return processed

    def request(self, node: Node) -> None:
        """Asks for the pod of `node`. Raises TemplateError if that can't be; the node is an Error then."""
        try:
            raw = self.templates.of(self.nodes, node)
            template = self.process(request_template(self.spec, self.name, raw), node)
            wanted = build(self.name, node, self.pod_name(node), template, result_is_wanted(self, node))
            if isinstance(wanted, PodRequest):
                limit, end = deadlines.of_pod(self, template, node), retry.end_of_attempts(self, raw, node)
                wanted = replace(wanted, active_deadline=limit, deadline=end)
        except (TemplateError, PatchError, UnresolvedError, ExpressionError) as error:
            self.nodes.mark(node, ERROR, str(error))
            raise TemplateError(str(error)) from None
        if isinstance(wanted, Resource):
            self.resources[node["id"]] = wanted
        else:
            self.pods[node["id"]] = wanted

    def pod_name(self, node: Node) -> str:
        return pod_name(self.name, node)

    def publish(self, outputs: Mapping[str, Any] | None) -> None:
        """Makes outputs that have a `globalName` outputs of the Workflow."""
        self.globals |= publish(self.status, outputs)

    def _retries(self, template: Template) -> Mapping[str, Any] | None:
        """The retry strategy of `template`, its own or the Workflow's: one that says nothing is one, too."""
        own: Mapping[str, Any] | None = template.get("retryStrategy")
        return self.spec.get("retryStrategy") if own is None else own

    def _template(self, call: Call, node: Node | None) -> Template:
        inline = call.origin.get("inline")
        if not inline:
            return self.templates.find(call.scope, call.origin)
        if node is not None:
            return self.templates.of(self.nodes, node)
        if stored := self.templates.keep(self.nodes, call.name, call.boundary, inline):
            self.status["storedTemplates"] = stored
        found: Template = inline
        return found

    def _create(
        self,
        call: Call,
        name: str,
        kind: str,
        phase: str,
        inputs: Mapping[str, Any],
        flag: Mapping[str, bool] | None,
    ) -> Node:
        return self.nodes.create(
            name, kind, phase, origin=call.origin, scope=call.scope, boundary=call.boundary, flag=flag, inputs=inputs
        )

    def _start(self, call: Call, node: Node) -> None:
        if not self.may_start(call.on_exit):
            self.nodes.mark(node, FAILED, f"workflow shutdown with strategy: {self.shutdown}")
        elif self.overdue and not call.on_exit:
            self.nodes.mark(node, FAILED, deadlines.EXCEEDED)
        else:
            self.request(node)

    def _guarded(self, node: Node, advance: Callable[[Node], Node]) -> Node:
        try:
            return advance(node)
        except (TemplateError, UnresolvedError, ExpressionError) as error:
            self.nodes.mark(node, ERROR, str(error))
            raise TemplateError(str(error)) from None

    def _process(self, template: Template, node: Node, known: Mapping[str, str]) -> Template:
        inputs = node.get("inputs") or {}
        scope = {**known, **self._locals(node, template)}
        merged = {**template, "inputs": inputs} if inputs else template
        first = substitute(merged, scope)
        scope |= input_scope(inputs.get("parameters") or []) | artifacts.paths(first)
        for output in (template.get("outputs") or {}).get("parameters") or []:
            if (output.get("valueFrom") or {}).get("path"):
                scope[f"outputs.parameters.{output['name']}.path"] = output["valueFrom"]["path"]
        processed: Template = substitute(first, scope)
        return processed

    def _bind(self, template: Template, call: Call) -> dict[str, Any]:
        """The `inputs` of a new node. Raises TemplateError for a parameter or an artifact that is given by nobody."""
        given = {p["name"]: p["value"] for p in call.arguments.get("parameters") or [] if "value" in p}
        inputs = []
        for declared in (template.get("inputs") or {}).get("parameters") or []:
            own = declared.get("value", declared.get("default"))
            value = given.get(declared["name"], own)
            if value is None:
                raise TemplateError(f"inputs.parameters.{declared['name']} had no value")
            inputs.append({**declared, "value": text(value)})
        scope = {**self.globals, "node.name": call.name}
        bound: list[Any] = substitute(inputs, scope)
        files = substitute(substitute(artifacts.bind(template, call.arguments), scope), input_scope(bound))
        artifacts.check_keys(files)
        return {name: several for name, several in (("parameters", bound), ("artifacts", files)) if several}

    def _try(self, template: Template, call: Call, inputs: Mapping[str, Any]) -> None:
        """Raises what substitution raises: then the node is of no kind, as in Argo."""
        if has_expression(template):
            holder = self.nodes.get(call.boundary)
            display = display_name(call.name, holder["name"]) if holder is not None else call.name
            key = node_id(self.name, call.name)
            sketch = {"id": key, "name": call.name, "displayName": display, "type": "", "boundaryID": call.boundary}
            self.process(template, {**sketch, "inputs": inputs})

    def _locals(self, node: Node, template: Template) -> dict[str, str]:
        """`node.name`, `pod.name`, `tasks.name` or `steps.name`, and for attempts `retries` and `lastRetry.*`."""
        name, display = node["name"], node["displayName"]
        scope = {}
        if is_pod(template):
            scope["pod.name"] = self.pod_name(node)
        if (node.get("nodeFlag") or {}).get("retried") and node["type"] != "Retry":
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
            origin=call.origin, scope=call.scope, boundary=call.boundary, flag=call.flag, message=message,
        )  # fmt: skip
