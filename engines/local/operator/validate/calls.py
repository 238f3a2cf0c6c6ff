"""What tasks and steps have in common: what they hand over, loop over, and leave for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .....workflows.shapes import mapping
from ..expressions import ExpressionError, evaluate_when
from ..paths import Path
from .conditions import unreadable
from .problem import Problem, Template, artifacts, parameters
from .references import ANY_ARTIFACT, ANY_ITEM, ANY_PARAMETER, Scope, is_reference

if TYPE_CHECKING:
    from .templates import Walk

Call = Mapping[str, Any]

_LOOPS = ("withItems", "withParam", "withSequence")
_ALWAYS = ("id", "startedAt", "finishedAt", "hostNodeName")
_WITH_RESULT = ("container", "script", "data", "http", "plugin")


def given(call: Call) -> set[str]:
    """The names of the arguments that have a value: `parameters.NAME`, `artifacts.NAME`."""
    has_value = (p for p in parameters(call, "arguments") if p.get("value", p.get("valueFrom")) is not None)
    found = {f"parameters.{p.get('name')}" for p in has_value}
    return found | {f"artifacts.{a.get('name')}" for a in artifacts(call, "arguments")}


def own_inputs(call: Call) -> set[str]:
    """What references within an inline template may name besides."""
    return {f"inputs.parameters.{p.get('name')}" for p in parameters(call.get("inline") or {}, "inputs")}


def items(call: Call) -> tuple[set[str], str]:
    """What references may say of a loop's items, and what is wrong with the loop."""
    if sum(bool(call.get(key)) if key != "withSequence" else call.get(key) is not None for key in _LOOPS) > 1:
        return set(), "only one of withItems, withParam, withSequence can be specified"
    if call.get("withParam"):
        return {"item", ANY_ITEM}, ""
    if call.get("withSequence") is not None:
        both = call["withSequence"].get("count") is not None and call["withSequence"].get("end") is not None
        return {"item"}, "only one of count or end can be defined in withSequence" if both else ""
    names: set[str] = set()
    for item in call.get("withItems") or []:
        if isinstance(item, Mapping):
            names |= {f"item.{key}" for key in item}
        elif isinstance(item, list):
            names |= {f"item.[{index}]" for index in range(len(item))}
        else:
            names.add("item")
    return names, ""


def aggregates(call: Call) -> bool:
    """Whether the outputs of the runs of a loop come as lists."""
    return bool(call.get("withItems") or call.get("withParam"))


def condition(call: Call, where: str, path: Path) -> Iterator[Problem]:
    """A `when` that nothing will change before it is looked at."""
    when = call.get("when") or ""
    if "{{" not in when:
        try:
            evaluate_when(when)
        except ExpressionError as error:
            yield Problem((*path, "when"), f"{where}.when: {error}", ours=True)


def has_exit_hook(call: Call) -> bool:
    return bool(call.get("onExit")) or "exit" in (call.get("hooks") or {})


def hooks(holder: Mapping[str, Any], where: str, path: Path) -> Iterator[Problem]:
    for name, said in mapping(holder.get("hooks")).items():
        hook = mapping(said)
        if name != "exit" and not hook.get("expression"):
            yield Problem((*path, "hooks", name), f"{where}.{name} Expression required")
        if hook.get("expression"):
            place = (*path, "hooks", name, "expression")
            yield from unreadable(hook["expression"], f"{where}.hooks.{name}.expression", place)


def output_names(walk: Walk, template: Template | None, prefix: str, scope: Scope, *, loop: bool) -> set[str]:
    """What others may name of a call with this `prefix`; outputs with a global name are noted in `scope`."""
    names = {f"{prefix}.{key}" for key in _ALWAYS}
    if template is None:
        return names
    if template.get("daemon"):
        names.add(f"{prefix}.ip")
    containers = (template.get("containerSet") or {}).get("containers") or []
    if any(template.get(kind) is not None for kind in _WITH_RESULT) or any(c.get("name") == "main" for c in containers):
        names |= {f"{prefix}.outputs.result", f"{prefix}.exitCode"}
    kinds = (("parameters", parameters, ANY_PARAMETER), ("artifacts", artifacts, ANY_ARTIFACT))
    for kind, declared, any_ in kinds:
        for output in declared(template, "outputs"):
            names.add(f"{prefix}.outputs.{kind}.{output.get('name')}")
            if known := output.get("globalName"):
                if is_reference(known):
                    scope.names.add(any_)
                else:
                    walk.globals.names.add(f"workflow.outputs.{kind}.{known}")
    if loop:
        names.add(f"{prefix}.outputs.parameters")
        if template.get("script") is not None or template.get("containerSet") is not None:
            names |= {f"{prefix}.outputs.result", f"{prefix}.exitCode"}
    return names


def only_of_leaves(template: Template, where: str, path: Path) -> Iterator[Problem]:
    """What only templates with a pod of their own may say."""
    if template.get("activeDeadlineSeconds") is not None:
        message = f"{where}.activeDeadlineSeconds is only valid for leaf templates"
        yield Problem((*path, "activeDeadlineSeconds"), message)
