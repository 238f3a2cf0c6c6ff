"""DAG templates: starting tasks whose time has come, and telling when the whole has ended, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import artifacts, hooks
from .assessment import assess
from .calls import Call, NoRoomError, TemplateError, TimedOutError, TooDeepError
from .depends import Graph, task_results
from .expressions import ExpressionError, evaluate_when
from .loops import Loop, LoopError, loops
from .nodes import Node
from .phases import ERROR, FAILED, FULFILLED, OMITTED, RUNNING, SKIPPED, SUCCEEDED, UNSUCCESSFUL, fulfilled, settled
from .resolution import scope_of
from .scope import group_scope, input_scope, mentioned, node_scope, template_outputs
from .templates import OUTPUTS, UnresolvedError, substitute

if TYPE_CHECKING:
    from .operation import Operation

Task = Mapping[str, Any]


class _Plan:
    """What of a DAG stays the same from pass to pass, and how far it has come."""

    def __init__(self, template: Mapping[str, Any]) -> None:
        self.template = template
        self.graph = Graph(template["dag"]["tasks"])
        self.targets = (template["dag"].get("target") or "").split() or self.graph.leaves()
        self.open = self.graph.order(self.targets)  # tasks that something may come of yet
        self.ended: set[str] = set()  # tasks, with their hooks
        self.waits_for: dict[str, str] = {}  # a task that has not ended, for a task that can't start before
        self.order = [*self.open]
        self.hooked = any(hooks.has_hooks(task) for task in self.graph.tasks.values())


def execute(op: Operation, call: Call, node: Node, template: Mapping[str, Any]) -> Node:
    """Brings the unfinished DAG `node` as far as it goes now. Raises TemplateError, and what substitution raises."""
    plan = op.remember(node, "plan", lambda: _Plan(op.process_body(template, node)))
    dag = _Dag(op, call, node, plan)
    dag.advance()
    phase = dag.outcome()
    if phase == RUNNING:
        return op.nodes[node["id"]]
    if phase == SUCCEEDED:
        names = list(plan.graph.tasks)
        for name in names:
            op.publish((dag.node_of(name) or {}).get("outputs"))
        scope = {**dag.inputs(), **dag.scope(names)}
        outputs = template_outputs(plan.template, scope, dag.artifacts(names))
        if outputs:
            op.nodes.edit(op.nodes[node["id"]])["outputs"] = outputs
    op.nodes.edit(op.nodes[node["id"]])["outboundNodes"] = dag.outbound()
    return op.nodes.mark(node, phase)


class _Dag:
    def __init__(self, op: Operation, call: Call, node: Node, plan: _Plan) -> None:
        self.op, self.plan, self.graph, self.template = op, plan, plan.graph, plan.template
        self.name, self.id = node["name"], node["id"]
        self.context = Call(self.name, {}, scope_of(call.scope, call.origin), {}, self.id, call.on_exit)
        self.refused = False  # a task that could start found no room
        self.exiting = False  # an exit handler of a task still runs

    def node_of(self, task: str) -> Node | None:
        return self.op.nodes.named(f"{self.name}.{task}")

    def advance(self) -> None:
        """Brings the tasks as far as they go, first things first. Raises TemplateError for hooks of the last ones."""
        plan = self.plan
        if self.op.nodes.census.daemons[self.id]:  # one that is up lets others go on, and may come down again
            plan.waits_for.clear()
        asked_for = self._asked_for() if plan.hooked else set()
        still = []
        for name in plan.open:
            task, waits_for = self.graph.tasks[name], plan.waits_for.get(name)
            if waits_for is not None and waits_for not in plan.ended:
                still.append(name)
                continue
            if (name in asked_for or name not in plan.ended) and self._advance(task):
                plan.ended.add(name)
            if name not in plan.ended or hooks.has_hooks(task):
                still.append(name)
        plan.open = still
        for name in plan.targets if plan.hooked else ():
            node = self.node_of(name)
            if node is not None:
                self._attend(self.graph.tasks[name], node)
                self._leave(self.graph.tasks[name], node)

    def _asked_for(self) -> set[str]:
        """The tasks that Argo comes to, on its way from the last ones to what they wait for: their hooks are run."""
        found = set(self.plan.targets)
        for name in reversed(self.plan.order):
            node = self.node_of(name) if name in found else None
            if name in found and (node is None or node["phase"] not in FULFILLED):
                found.update(self.graph.waits_for[name])
        return found

    def _advance(self, task: Task) -> bool:
        """Brings one task as far as it goes; whether it has ended, and its hooks."""
        node, hooked = self.node_of(task["name"]), hooks.has_hooks(task)
        over = node is not None and node["phase"] in FULFILLED
        if node is not None and hooked:
            try:
                if not self._attend(task, node) and over:
                    return False
            except TemplateError as error:
                if over:  # else it is told when it is
                    self.op.nodes.mark(node, ERROR, str(error))
                    return True
        if node is None or not settled(node):
            node = self._go_on(task, node)
        if hooked and node is not None and (over or not loops(task)) and not self._left(task, node):
            return False
        return node is not None and self.op.nodes[node["id"]]["phase"] in FULFILLED

    def _left(self, task: Task, node: Node) -> bool:
        try:
            return self._leave(task, node)
        except TemplateError:  # as if there were none, as in Argo
            return True

    def _attend(self, task: Task, node: Node) -> bool:
        return hooks.attend(self.op, self.context, task, node, f"tasks.{task['name']}", partial(self._seen, task, node))

    def _leave(self, task: Task, node: Node) -> bool:
        seen = partial(self._seen, task, node)
        done = hooks.leave(self.op, self.context, task, node, f"tasks.{task['name']}", seen)
        self.exiting = self.exiting or not done
        return done

    def _seen(self, task: Task, node: Node) -> hooks.Known:
        """What hooks of `task` may refer to; `node` is the whole of it, or one run."""
        ancestors = self.graph.ancestors(task["name"])
        known = {**self.inputs(), **self.scope(ancestors), f"tasks.{task['name']}.status": node["phase"]}
        return known, self.artifacts(ancestors)

    def _go_on(self, task: Task, node: Node | None) -> Node | None:
        name = task["name"]
        if node is None and not self._its_turn(name):
            return self.node_of(name)
        if loops(task):
            return self._run_loop(task, node)
        return self._run(task, name, node, partial(self._resolve, task))

    def _its_turn(self, name: str) -> bool:
        """Whether a task without a node may start; one that will never start gets its node here."""
        waits_for = self.graph.waits_for[name]
        if not waits_for:
            return True
        results = {}
        for other in waits_for:
            node = self.node_of(other)
            if node is None or not fulfilled(node) or not hooks.all_ended(self.op, node) or node["id"] in self.op.cut:
                self.plan.waits_for[name] = other
                return False
            results[other] = task_results(node, self.op.nodes.children(node) if node["type"] == "TaskGroup" else None)
        try:
            if self.graph.may_run(name, results):
                return True
            self._virtual(self.graph.tasks[name], name, OMITTED, "omitted: depends condition not met")
        except ExpressionError as error:
            message = f"unable to evaluate expression '{self.graph.logic[name].replace('-', '_')}': {error}"
            self._virtual(self.graph.tasks[name], name, ERROR, message)
        return False

    def _resolve(self, task: Task) -> Task:
        """`task` with the outputs of the tasks before it. Raises UnresolvedError, ExpressionError."""
        ancestors = mentioned(task, list(self.graph.tasks))
        if ancestors:
            before = set(self.graph.ancestors(task["name"]))
            ancestors = [name for name in ancestors if name in before]
        scope = {**self.op.globals, **self.inputs(), **self.scope(ancestors)}
        later = {key: task[key] for key in ("hooks",) if key in task}
        if task.get("inline"):  # what it says of its own tasks can't be known yet
            later["inline"] = substitute(task["inline"], scope)
        resolved: Task = substitute({k: v for k, v in task.items() if k not in later}, scope, OUTPUTS) | later
        return artifacts.resolve(resolved, self.artifacts(ancestors), scope, expands=loops(task))

    def inputs(self) -> dict[str, str]:
        return input_scope((self.template.get("inputs") or {}).get("parameters") or [])

    def artifacts(self, tasks: list[str]) -> artifacts.Lookup:
        """The artifacts that there are: the DAG's own, the Workflow's, those of `tasks`."""
        known = artifacts.lookup("inputs", self.template.get("inputs"))
        known |= artifacts.lookup("workflow.outputs", self.op.status.get("outputs"))
        for name in tasks:
            if (node := self.node_of(name)) is not None:
                known |= artifacts.of_node(self.op.nodes, f"tasks.{name}", node)
        return known

    def scope(self, tasks: list[str]) -> dict[str, str]:
        """The outputs of `tasks`, as far as they ran."""
        scope: dict[str, str] = {}
        for name in tasks:
            node = self.node_of(name)
            if node is None:
                continue
            if node["type"] == "TaskGroup":
                scope |= group_scope(f"tasks.{name}", self._items(node))
            scope |= node_scope(self.op.nodes, f"tasks.{name}", node)
        return scope

    def _run_loop(self, task: Task, group: Node | None) -> Node:
        known = {**self.op.globals, **self.inputs()}
        try:
            if group is None:
                loop = Loop(self._resolve(task), known)
            else:
                loop = self.op.remember(group, "loop", lambda: Loop(self._resolve(task), known))
        except (UnresolvedError, ExpressionError, LoopError) as error:
            if group is None:
                return self._virtual(task, task["name"], ERROR, str(error))
            return self.op.nodes.mark(group, ERROR, str(error))
        if not loop.items:
            return self._virtual(task, task["name"], SKIPPED, "Skipped, empty params")
        if group is None:
            group = self._virtual(task, task["name"], RUNNING, "", "TaskGroup")
            self.op.remember(group, "loop", lambda: loop)
        if phase := self._run_items(task, loop, group, known):
            self.op.forget(group)
            return self.op.nodes.mark(group, phase)
        return self.op.nodes[group["id"]]

    def _run_items(self, task: Task, loop: Loop, group: Node, known: Mapping[str, str]) -> str:
        """Brings the runs of a loop as far as they go now. The phase of all together, '' while some go on."""
        made = self._items(group)
        for node in made:
            if not settled(node):
                self._run(loop.task, node["name"].removeprefix(f"{self.name}."), node, dict, group)
        for index in loop.missing(made):
            resolve = partial(loop.run, loop.items[index], known)
            new = self._run(loop.task, loop.name(index), None, resolve, group)
            if new is None:  # the others will find no room either
                return ""
            made.append(new)
        ended, phase = True, SUCCEEDED
        for node in made:
            node = self.op.nodes[node["id"]]
            if not fulfilled(node) or (hooks.has_hooks(task) and not self._left(task, node)):
                ended = False
            elif node["phase"] in UNSUCCESSFUL:
                phase = node["phase"]
        return phase if ended else ""

    def _items(self, group: Node) -> list[Node]:
        """The nodes of a loop, not those of its hooks."""
        return [node for node in self.op.nodes.children(group) if node["name"].startswith(f"{group['name']}(")]

    def _run(
        self, task: Task, name: str, node: Node | None, resolve: Callable[[], Task], group: Node | None = None
    ) -> Node | None:
        """Runs `task`, or its run for one item of `group`, under `name`. `resolve` is only called for a new node.

        None: there is no room for it yet.
        """
        full, new = f"{self.name}.{name}", node is None
        origin = task
        if new:
            try:
                origin = resolve()
                proceed = evaluate_when(origin.get("when") or "")
            except (UnresolvedError, ExpressionError) as error:
                return self._virtual(task, name, ERROR, str(error), group=group)
            if not proceed:
                message = f"when '{origin['when']}' evaluated false"
                return self._virtual(task, name, SKIPPED, message, group=group)
        problem = ""
        try:
            self.op.execute(replace(self.context, name=full, origin=origin, arguments=origin.get("arguments") or {}))
        except (NoRoomError, TooDeepError, TimedOutError):
            pass
        except TemplateError as error:
            problem = f"task '{full}' errored: {error}"
        node = self.op.nodes.named(full)
        if node is None:
            self.refused = True
            return None
        if new:
            self._connect(task["name"], node["id"], group)
        return self.op.nodes.mark(node, ERROR, problem) if problem else self.op.nodes[node["id"]]

    def _virtual(
        self,
        task: Task,
        name: str,
        phase: str,
        message: str,
        kind: str = "Skipped",
        group: Node | None = None,
    ) -> Node:
        """A node that is no run of a template: a group, or a task that doesn't run."""
        node = self.op.nodes.create(
            f"{self.name}.{name}", kind, phase,
            origin=task, scope=self.context.scope, boundary=self.id, flag={}, message=message,
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
                for last in (nodes.outbound(before["id"]) or [before["id"]]) if before else []:
                    nodes.adopt(nodes[last], key)

    def outbound(self) -> list[str]:
        nodes = (self.node_of(target) for target in self.plan.targets)
        return [last for node in nodes if node is not None for last in self.op.nodes.outbound(node["id"])]

    def outcome(self) -> str:
        """The DAG's phase now."""
        if not self.op.may_start(self.context.on_exit) and not self.exiting:
            return FAILED
        if self.refused:
            return RUNNING
        targets = {f"{self.name}.{target}": self.graph.tasks[target] for target in self.plan.targets}
        return assess(self.op.nodes, self.op.nodes[self.id], self.template, targets)
