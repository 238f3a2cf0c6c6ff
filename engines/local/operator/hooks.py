"""Lifecycle hooks: templates that run beside a task, a step or the Workflow when an expression holds, or at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import artifacts
from .calls import Call, NoRoomError, TemplateError
from .expressions import ExpressionError, evaluate_condition
from .jsontext import text
from .nodes import Node
from .phases import COMPLETED, FULFILLED, RUNNING, fulfilled
from .templates import UnresolvedError, expand, substitute

if TYPE_CHECKING:
    from .operation import Operation

EXIT = "exit"

Scope = Mapping[str, str]
Known = tuple[dict[str, str], artifacts.Lookup]  # what expressions and arguments may refer to: values, and files
Holder = Mapping[str, Any]  # what may have hooks: a task, a step, the spec


def has_hooks(holder: Holder) -> bool:
    return bool(holder.get("hooks") or holder.get("onExit"))


def exit_hook(op: Operation, holder: Holder) -> Mapping[str, Any] | None:
    """The exit hook of a task, step or spec, with the Workflow's arguments if it has none of its own."""
    arguments = op.spec.get("arguments") or {}
    if holder.get("onExit"):
        return {"template": holder["onExit"], "arguments": arguments}
    hook: Mapping[str, Any] | None = (holder.get("hooks") or {}).get(EXIT)
    return hook and {**hook, "arguments": hook.get("arguments") or arguments}


def all_ended(op: Operation, node: Node) -> bool:
    """Whether no hook of `node` still runs."""
    return all(fulfilled(child) for child in op.nodes.children(node) if (child.get("nodeFlag") or {}).get("hooked"))


def attend(op: Operation, context: Call, holder: Holder, node: Node, prefix: str, scope: Callable[[], Known]) -> bool:
    """Runs the hooks of a task or step, but for that at its exit; whether none of those begun is left running.

    `context` is a call within the DAG or steps, `prefix` how others refer to `node`, `scope` what expressions and
    arguments may refer to. Raises TemplateError for a hook that can't be run.
    """
    if not holder.get("hooks") or not (fulfilled(node) or node["phase"] == RUNNING):
        return True
    return _run_all(op, context, holder["hooks"], node, prefix, scope)


def leave(op: Operation, context: Call, holder: Holder, node: Node, prefix: str, scope: Callable[[], Known]) -> bool:
    """As `attend`, for the hook at the exit of a task or step that has run."""
    if node["phase"] not in COMPLETED:
        return True
    return _run_exit(op, context, exit_hook(op, holder), node, prefix, scope)


def attend_workflow(op: Operation, root: Node) -> bool:
    """As `attend`, for the Workflow's own hooks, but for the exit handler."""
    hooks = substitute(op.spec.get("hooks") or {}, op.globals)
    return _run_all(op, Call(op.name, {}, op.scope), hooks, root, "", lambda: ({}, {}))


def _run_all(
    op: Operation,
    context: Call,
    hooks: Mapping[str, Mapping[str, Any]],
    parent: Node,
    prefix: str,
    scope: Callable[[], Known],
) -> bool:
    done = True
    for key, hook in hooks.items():
        if key == EXIT:
            continue
        name = f"{parent['name']}.hooks.{key}"
        if op.nodes.named(name) is None and not _holds(op, hook.get("expression") or "", name, scope):
            continue
        arguments = hook.get("arguments") or {}
        outputs = _outputs(op, parent)
        if arguments and outputs is not None:
            arguments = _resolve(op, arguments, prefix, outputs, scope())
        done = _run(op, context.hook(name, hook, arguments, on_exit=False), parent) and done
    return done


def _run_exit(
    op: Operation,
    context: Call,
    hook: Mapping[str, Any] | None,
    parent: Node,
    prefix: str,
    scope: Callable[[], Known],
) -> bool:
    name = f"{parent['name']}.onExit"
    if hook is None or not op.may_start(on_exit=True):
        return True
    if hook.get("expression") and op.nodes.named(name) is None and not _holds(op, hook["expression"], name, scope):
        return True
    arguments = hook.get("arguments") or {}
    if arguments:
        arguments = _resolve(op, arguments, prefix, _outputs(op, parent) or {}, scope())
    return _run(op, context.hook(name, hook, arguments, on_exit=True), parent)


def _run(op: Operation, call: Call, parent: Node) -> bool:
    node = op.nodes.named(call.name)
    if node is None or node["phase"] not in FULFILLED:
        try:
            node = op.execute(call)
        except NoRoomError:
            node = op.nodes.named(call.name)
        if node is None:
            return False
        op.nodes.adopt(parent, node["id"])
    return fulfilled(node)


def _holds(op: Operation, expression: str, name: str, scope: Callable[[], Known]) -> bool:
    if not expression:
        raise TemplateError(f"Expression required for hook {name}")
    try:
        return evaluate_condition(expression, expand({**op.globals, **scope()[0]}))
    except ExpressionError as error:
        raise TemplateError(str(error)) from None


def _outputs(op: Operation, node: Node) -> Mapping[str, Any] | None:
    """The outputs of a node; of a retried one, those of its last attempt."""
    attempts = op.nodes.attempts(node) if node["type"] == "Retry" else []
    return (attempts[-1] if attempts else op.nodes[node["id"]]).get("outputs")


def _resolve(
    op: Operation, arguments: Mapping[str, Any], prefix: str, outputs: Mapping[str, Any], known: Known
) -> Mapping[str, Any]:
    values, files = known
    own = {
        f"{prefix}.outputs.parameters.{parameter['name']}": text(parameter.get("value", ""))
        for parameter in outputs.get("parameters") or []
    }
    try:
        scope = {**op.globals, **values, **own}
        files = files | artifacts.lookup(f"{prefix}.outputs", outputs)
        call = artifacts.resolve({"arguments": substitute(arguments, scope)}, files, scope, expands=False)
    except (ExpressionError, UnresolvedError) as error:
        raise TemplateError(str(error)) from None
    resolved: Mapping[str, Any] = call["arguments"]
    return resolved
