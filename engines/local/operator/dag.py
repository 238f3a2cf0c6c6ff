"""DAG templates: starting tasks whose time has come, and telling when the whole has ended, and how."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from . import loops
from .depends import Graph, task_results
from .expressions import ExpressionError, evaluate_when
from .nodes import COMPLETED, ERROR, FAILED, FULFILLED, OMITTED, RUNNING, SKIPPED, SUCCEEDED, UNSUCCESSFUL, Node
from .scope import group_scope, input_scope, node_scope, template_outputs
from .templates import EVERYTHING, OUTPUTS, UnresolvedError, substitute

if TYPE_CHECKING:
    from .operation import Call, Operation


def execute(op: Operation, call: Call, node: Node, template: Mapping[str, Any]) -> Node:
    """Brings the unfinished DAG `node` as far as it goes now. `template` has its inputs substituted."""
    dag = _Dag(op, call, node, template)
    for task in dag.graph.order(dag.targets):
        dag.advance(task)
    phase = dag.outcome()
    if phase == RUNNING:
        return op.nodes[node["id"]]
    op.nodes.edit(op.nodes[node["id"]])["outboundNodes"] = dag.outbound()
    if phase == SUCCEEDED:
        try:
            outputs = template_outputs(template, dag.scope(list(dag.graph.tasks)))
        except (UnresolvedError, ExpressionError) as error:
            return op.nodes.mark(node, ERROR, str(error))
        if outputs:
            op.nodes.edit(op.nodes[node["id"]])["outputs"] = outputs
    return op.nodes.mark(node, phase)


class _Dag:
    def __init__(self, op: Operation, call: Call, node: Node, template: Mapping[str, Any]) -> None:
        self.op, self.call, self.template = op, call, template
        self.name, self.id = node["name"], node["id"]
        self.graph = Graph(template["dag"]["tasks"])
        self.targets = (template["dag"].get("target") or "").split() or self.graph.leaves()

    def node_of(self, task: str) -> Node | None:
        return self.op.nodes.named(f"{self.name}.{task}")

    def advance(self, name: str) -> None:
        node = self.node_of(name)
        if node is not None and node["phase"] in FULFILLED:
            return
        task = self.graph.tasks[name]
        if node is None and not self._its_turn(name):
            return
        if loops.loops(task):
            self._advance_loop(task, node)
        else:
            arguments = partial(self._resolve, task) if node is None else None
            self._run(task, task["name"], node, arguments)

    def _its_turn(self, name: str) -> bool:
        """Whether a task without a node may start; one that will never start gets its node here."""
        waits_for = self.graph.waits_for[name]
        if not waits_for:
            return True
        results = {}
        for other in waits_for:
            node = self.node_of(other)
            if node is None or node["phase"] not in FULFILLED:
                return False
            children = None
            if node["type"] == "TaskGroup":
                children = [self.op.nodes[key]["phase"] for key in node.get("children") or []]
            results[other] = task_results(node["phase"], children)
        try:
            if self.graph.may_run(name, results):
                return True
            self._virtual(self.graph.tasks[name], name, OMITTED, "omitted: depends condition not met")
        except ExpressionError as error:
            self._virtual(self.graph.tasks[name], name, ERROR, str(error))
        return False

    def _resolve(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """`task` with the outputs of the tasks before it. Raises UnresolvedError, ExpressionError."""
        ancestors = self.graph.ancestors(task["name"])
        scope = {**self.op.globals, **self._inputs(), **self.scope(ancestors)}
        resolved: Mapping[str, Any] = substitute(task, scope, OUTPUTS)
        return resolved

    def _inputs(self) -> dict[str, str]:
        return input_scope((self.template.get("inputs") or {}).get("parameters") or [])

    def scope(self, tasks: list[str]) -> dict[str, str]:
        """The outputs of `tasks`, as far as they ran."""
        scope: dict[str, str] = {}
        for name in tasks:
            node = self.node_of(name)
            if node is None:
                continue
            if node["type"] == "TaskGroup":
                children = [self.op.nodes[key] for key in node.get("children") or []]
                scope |= group_scope(f"tasks.{name}", children)
            else:
                scope |= node_scope(self.op.nodes, f"tasks.{name}", node)
        return scope

    def _advance_loop(self, task: Mapping[str, Any], group: Node | None) -> None:
        try:
            resolved = self._resolve(task)
            items = loops.items(resolved)
        except (UnresolvedError, ExpressionError, loops.LoopError) as error:
            if group is None:
                self._virtual(task, task["name"], ERROR, str(error))
            else:
                self.op.nodes.mark(group, ERROR, str(error))
            return
        if not items:
            self._virtual(task, task["name"], SKIPPED, "Skipped, empty params")
            return
        if group is None:
            group = self._virtual(task, task["name"], RUNNING, "", "TaskGroup")
        ended, phase = True, SUCCEEDED
        for index, item in enumerate(items):
            name = loops.run_name(task["name"], index, item)
            node = self.node_of(name)
            if node is None or node["phase"] not in FULFILLED:
                expand = partial(self._for_item, resolved, item)
                node = self._run(resolved, name, node, expand, group)
            if node is None or node["phase"] not in FULFILLED:
                ended = False
            elif node["phase"] in UNSUCCESSFUL:
                phase = node["phase"]
        if ended:
            self.op.nodes.mark(group, phase)

    def _for_item(self, task: Mapping[str, Any], item: Any) -> Mapping[str, Any]:
        wanted = {"template": task["template"], "arguments": task.get("arguments"), "when": task.get("when")}
        scope = {**self.op.globals, **self._inputs(), **loops.item_scope(item)}
        strict: tuple[str, ...] = EVERYTHING
        if "{{" not in (task.get("when") or "") and not evaluate_when(task.get("when") or ""):
            strict = ()  # it won't run: what it would have been given doesn't matter
        resolved: Mapping[str, Any] = substitute(wanted, scope, strict)
        return resolved

    def _run(
        self, task: Mapping[str, Any], name: str, node: Node | None, resolve: Any, group: Node | None = None
    ) -> Node | None:
        """Runs `task`, or its run for one item of `group`, under `name`. `resolve` is only called for a new node."""
        arguments: list[Any] = []
        if node is None:
            try:
                resolved = resolve()
                proceed = evaluate_when(resolved.get("when") or "")
            except (UnresolvedError, ExpressionError) as error:
                return self._virtual(task, name, ERROR, str(error), group=group)
            if not proceed:
                message = f"when '{resolved['when']}' evaluated false"
                return self._virtual(task, name, SKIPPED, message, group=group)
            arguments = (resolved.get("arguments") or {}).get("parameters") or []
        started = self.op.execute(self.call.child(f"{self.name}.{name}", task["template"], arguments, self.id))
        if node is None and started is not None:
            self._connect(task["name"], started["id"], group)
        return started

    def _virtual(
        self,
        task: Mapping[str, Any],
        name: str,
        phase: str,
        message: str,
        kind: str = "Skipped",
        group: Node | None = None,
    ) -> Node:
        """A node that is no run of a template: a group, or a task that doesn't run."""
        node = self.op.nodes.create(
            f"{self.name}.{name}", kind, phase,
            template=task["template"], boundary=self.id, flag={}, message=message,
        )  # fmt: skip
        self._connect(task["name"], node["id"], group)
        return node

    def _connect(self, task: str, key: str, group: Node | None) -> None:
        """Makes the node `id` a child of what came before it."""
        nodes = self.op.nodes
        if group is not None:
            nodes.adopt(group, key)
        elif not self.graph.waits_for[task]:
            nodes.adopt(nodes[self.id], key)
        else:
            for other in self.graph.waits_for[task]:
                before = self.node_of(other)
                for last in nodes.outbound(before["id"]) if before else []:
                    nodes.adopt(nodes[last], key)

    def outbound(self) -> list[str]:
        nodes = (self.node_of(target) for target in self.targets)
        return [last for node in nodes if node is not None for last in self.op.nodes.outbound(node["id"])]

    def outcome(self) -> str:
        """The DAG's phase: Running, or that of its targets once nothing of it runs.

        A target that didn't run takes the phase of the branch that leads to it, a failed one before a succeeded one.
        """
        if not self.op.may_start(self.call.on_exit):
            return FAILED
        nodes = self.op.nodes
        found = {f"{self.name}.{target}": "" for target in self.targets}
        queue = deque((key, SUCCEEDED) for key in nodes[self.id].get("children") or [])
        seen = set(queue)
        while queue:
            key, branch = queue.popleft()
            node = nodes[key]
            if node["phase"] not in FULFILLED:
                return RUNNING
            if node["phase"] in COMPLETED:
                branch = node["phase"]
            if found.get(node["name"], ERROR) not in UNSUCCESSFUL:
                found[node["name"]] = branch
            children = node.get("children") or []
            if node["type"] == "Retry":  # its attempts are no concern of ours, only what follows them
                children = [after for attempt in children for after in nodes[attempt].get("children") or []]
            for child in children:
                if (child, branch) not in seen:
                    seen.add((child, branch))
                    queue.append((child, branch))
        return self._of_targets([(target, found[f"{self.name}.{target}"]) for target in self.targets])

    def _of_targets(self, phases: list[tuple[str, str]]) -> str:
        fail_fast = self.template["dag"].get("failFast", True)
        result = SUCCEEDED
        for target, phase in phases:
            if not phase:
                result = RUNNING
                if not fail_fast:
                    break
            elif phase in UNSUCCESSFUL:
                goes_on = self.graph.tasks[target].get("continueOn") or {}
                if goes_on.get("failed" if phase == FAILED else "error"):
                    continue
                result = phase
                if fail_fast:
                    break
        return result
