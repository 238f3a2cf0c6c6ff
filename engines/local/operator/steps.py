"""Steps templates: groups of parallel steps, one group after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import artifacts, hooks
from .calls import Call, NoRoomError, TemplateError, TimedOutError, TooDeepError
from .expressions import ExpressionError, evaluate_when
from .loops import Loop, LoopError, loop_index, loops
from .names import task_name
from .nodes import Node
from .phases import ERROR, FAILED, RUNNING, SKIPPED, SUCCEEDED, UNSUCCESSFUL, fulfilled, settled
from .resolution import scope_of
from .scope import group_scope, input_scope, node_scope, template_outputs
from .templates import OUTPUTS, UnresolvedError, substitute

if TYPE_CHECKING:
    from .operation import Operation

Step = Mapping[str, Any]


def execute(op: Operation, call: Call, node: Node, template: Mapping[str, Any]) -> Node:
    """Brings the unfinished Steps `node` as far as it goes now. Raises TemplateError, and what substitution raises."""
    steps = _Steps(op, call, node, op.remember(node, "template", lambda: op.process_body(template, node)))
    before: Node | None = None
    for index in range(len(steps.template["steps"])):
        group = steps.group(index, before)
        if group["phase"] in UNSUCCESSFUL:
            op.nodes.edit(op.nodes[node["id"]])["outboundNodes"] = steps.outbound(group)
            return op.nodes.mark(node, FAILED, group.get("message", ""))
        if not fulfilled(group):
            return op.nodes[node["id"]]
        before = group
    if before is not None:
        op.nodes.edit(op.nodes[node["id"]])["outboundNodes"] = steps.outbound(before)
    last = len(steps.template["steps"])
    shared = {name: value for name, value in op.globals.items() if name.startswith("workflow.outputs.")}
    outputs = template_outputs(steps.template, {**shared, **steps.scope(last)}, steps.artifacts(last))
    if outputs:
        op.nodes.edit(op.nodes[node["id"]])["outputs"] = outputs
        op.publish(outputs)
    return op.nodes.mark(node, SUCCEEDED)


@dataclass(frozen=True)
class _Planned:
    """A step with its references resolved, and its loop if it has one."""

    step: Step
    loop: Loop | None


class _StepError(ValueError):
    """What ends a whole group."""

    def __init__(self, phase: str, message: str) -> None:
        super().__init__(message)
        self.phase = phase


class _Steps:
    def __init__(self, op: Operation, call: Call, node: Node, template: Mapping[str, Any]) -> None:
        self.op, self.template = op, template
        self.name, self.id = node["name"], node["id"]
        self.context = Call(self.name, {}, scope_of(call.scope, call.origin), {}, self.id, call.on_exit)

    def group(self, index: int, before: Node | None) -> Node:
        """Brings a group of steps as far as it goes now."""
        nodes, name = self.op.nodes, f"{self.name}[{index}]"
        group = nodes.named(name)
        if group is None:
            self.scope(index)  # an output that can't be read ends the whole
            group = nodes.create(name, "StepGroup", RUNNING, scope=self.context.scope, boundary=self.id, flag={})
            self._connect(before, group)
        elif fulfilled(group) and not nodes.census.daemons[self.id]:
            return group
        try:
            return self._advance(index, group)
        except _StepError as error:
            group = nodes.mark(group, error.phase, str(error))
        self.op.forget(group)
        return group

    def scope(self, index: int) -> dict[str, str]:
        """What the steps of group `index` may refer to: the inputs, and the outputs of the steps before."""
        scope = input_scope((self.template.get("inputs") or {}).get("parameters") or [])
        for earlier, steps in enumerate(self.template["steps"][:index]):
            for step in steps:
                name = f"{self.name}[{earlier}].{step['name']}"
                node = self.op.nodes.named(name)
                if node is not None:
                    scope |= node_scope(self.op.nodes, f"steps.{step['name']}", node)
                    continue
                group = self.op.nodes.named(f"{self.name}[{earlier}]")
                runs = self._runs(group, step) if group is not None else []
                scope |= group_scope(f"steps.{step['name']}", [run for run in runs if run["type"] != "Skipped"])
        return scope

    def artifacts(self, index: int) -> artifacts.Lookup:
        """The artifacts that there are for group `index`: the steps' own, the Workflow's, those of the steps before."""
        known = artifacts.lookup("inputs", self.template.get("inputs"))
        known |= artifacts.lookup("workflow.outputs", self.op.status.get("outputs"))
        for earlier, several in enumerate(self.template["steps"][:index]):
            for step in several:
                node = self.op.nodes.named(f"{self.name}[{earlier}].{step['name']}")
                if node is not None:
                    known |= artifacts.of_node(self.op.nodes, f"steps.{step['name']}", node)
        return known

    def outbound(self, group: Node) -> list[str]:
        return [last for child in self.op.nodes.children(group) for last in self.op.nodes.outbound(child["id"])]

    def _connect(self, before: Node | None, group: Node) -> None:
        nodes = self.op.nodes
        if before is None:
            nodes.adopt(nodes[self.id], group["id"])
            return
        for last in self.outbound(before) or [before["id"]]:
            nodes.adopt(nodes[last], group["id"])

    def _runs(self, group: Node, step: Step) -> list[Node]:
        """The nodes of a step that loops."""
        prefix = f"{group['name']}.{step['name']}("
        return [child for child in self.op.nodes.children(group) if child["name"].startswith(prefix)]

    def _plan(self, index: int) -> list[_Planned]:
        """The steps of a group, their references resolved. Raises _StepError."""
        known = {**self.op.globals, **self.scope(index)}
        try:
            resolved = [self._resolve(index, step, known) for step in self.template["steps"][index]]
        except (UnresolvedError, ExpressionError) as error:
            raise _StepError(ERROR, f"failed to resolve references: {error}") from None
        try:
            return [_Planned(step, Loop(step, known) if loops(step) else None) for step in resolved]
        except (UnresolvedError, ExpressionError, LoopError) as error:
            raise _StepError(ERROR, str(error)) from None

    def _resolve(self, index: int, step: Step, known: Mapping[str, str]) -> Step:
        later = {key: step[key] for key in ("hooks",) if key in step}
        if step.get("inline"):  # what it says of its own tasks can't be known yet
            later["inline"] = substitute(step["inline"], known)
        resolved: Step = substitute({k: v for k, v in step.items() if k not in later}, known, OUTPUTS) | later
        if not loops(step):
            evaluate_when(resolved.get("when") or "")
        try:
            return artifacts.resolve(resolved, self.artifacts(index), known, expands=loops(step))
        except UnresolvedError as error:
            raise UnresolvedError(f"unable to resolve references: {error}") from None

    def _advance(self, index: int, group: Node) -> Node:
        planned = self.op.remember(group, "plan", lambda: self._plan(index))
        complete = True
        for plan in planned:
            complete = (self._run_loop(group, plan.loop) if plan.loop else self._run_one(group, plan.step)) and complete
        if any(hooks.has_hooks(plan.step) for plan in planned):
            complete = self._attend(index, group, planned) and complete
        children = self.op.nodes.children(group)
        if not complete or not all(fulfilled(child) for child in children):
            return self.op.nodes.mark(group, RUNNING)
        for child in children:
            goes_on = self._plan_of(planned, group, child).step.get("continueOn") or {}
            if child["phase"] in UNSUCCESSFUL and not goes_on.get("failed" if child["phase"] == FAILED else "error"):
                raise _StepError(FAILED, f"child '{child['id']}' failed")
        self.op.forget(group)
        return self.op.nodes.mark(group, SUCCEEDED)

    def _run_one(self, group: Node, step: Step) -> bool:
        return self._run(group, step["name"], lambda: step)

    def _run_loop(self, group: Node, loop: Loop) -> bool:
        """Whether every run has a node."""
        name = f"{group['name']}.{loop.task['name']}"
        if not loop.items:
            if self.op.nodes.named(name) is None:
                self._virtual(group, loop.task, loop.task["name"], SKIPPED, "Skipped, empty params")
            return True
        made = self._runs(group, loop.task)
        for node in [node for node in made if not settled(node)]:
            self._run(group, node["name"].removeprefix(f"{group['name']}."), lambda: loop.task)
        known = {**self.op.globals, **input_scope((self.template.get("inputs") or {}).get("parameters") or [])}
        for at in loop.missing(made):
            if not self._run(group, loop.name(at), partial(loop.run, loop.items[at], known)):
                return False  # the others will find no room either
        return True

    def _run(self, group: Node, name: str, resolve: Callable[[], Step]) -> bool:
        """Runs a step, or its run for one item. `resolve` is only of interest while there is no node. False: no room.

        Raises _StepError.
        """
        nodes, full = self.op.nodes, f"{group['name']}.{name}"
        node = nodes.named(full)
        if node is not None and settled(node):
            return True
        step = resolve()
        if node is None:
            try:
                proceed = evaluate_when(step.get("when") or "")
            except ExpressionError as error:
                self._virtual(group, step, name, ERROR, str(error))
                raise _StepError(ERROR, str(error)) from None
            if not proceed:
                self._virtual(group, step, name, SKIPPED, f"when '{step['when']}' evaluated false")
                return True
        problem = None
        try:
            self.op.execute(replace(self.context, name=full, origin=step, arguments=step.get("arguments") or {}))
        except (NoRoomError, TooDeepError):
            pass
        except TimedOutError as error:
            problem = _StepError(FAILED, str(error))
        except TemplateError as error:
            problem = _StepError(ERROR, f"step group deemed errored due to child {full} error: {error}")
        node = nodes.named(full)
        if node is not None:
            nodes.adopt(group, node["id"])
        if problem is not None:
            raise problem
        return node is not None

    def _attend(self, index: int, group: Node, planned: list[_Planned]) -> bool:
        """Runs the hooks of the steps; whether none is left running. Raises _StepError."""
        known = self.scope(index)
        complete = True

        def scope() -> hooks.Known:
            return dict(known), self.artifacts(index)

        for child in self.op.nodes.children(group):
            plan = self._plan_of(planned, group, child)
            step = plan.step
            known[f"steps.{child['displayName']}.status"] = child["phase"]
            if plan.loop and plan.loop.items and hooks.has_hooks(step):
                step = plan.loop.run(plan.loop.items[loop_index(child)], {**self.op.globals, **known})
            prefix = f"steps.{child['name'].removeprefix(group['name'] + '.')}"
            try:
                if not hooks.attend(self.op, self.context, step, child, prefix, scope):
                    return False
                complete = hooks.leave(self.op, self.context, step, child, prefix, scope) and complete
            except TemplateError as error:
                raise _StepError(ERROR, str(error)) from None
        return complete

    @staticmethod
    def _plan_of(planned: list[_Planned], group: Node, child: Node) -> _Planned:
        """The step that a child of the group runs."""
        name = task_name(child["name"])
        return next(plan for plan in planned if plan.step["name"] == name)

    def _virtual(self, group: Node, step: Step, name: str, phase: str, message: str) -> None:
        """A node that is no run of a template: a step that doesn't run."""
        node = self.op.nodes.create(
            f"{group['name']}.{name}", "Skipped", phase,
            origin=step, scope=self.context.scope, boundary=self.id, flag={}, message=message,
        )  # fmt: skip
        self.op.nodes.adopt(group, node["id"])
