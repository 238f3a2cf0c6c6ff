"""Substitution of `{{…}}`: references to parameters, and `{{=…}}` expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .expressions import ExpressionError, UnknownNameError, evaluate, show

Scope = Mapping[str, str]  # flat: "inputs.parameters.x" -> value

EVERYTHING = ("",)  # as `strict`: every reference must resolve
OUTPUTS = ("tasks.", "steps.")  # as `strict`: those to other tasks' outputs must, others wait for later


class UnresolvedError(ValueError):
    """A reference that nothing in scope answers."""


def substitute(value: Any, scope: Scope, strict: tuple[str, ...] = ()) -> Any:
    """`value` with the references in all of its strings replaced; what holds none is returned itself, not copied.

    References that don't resolve stay as they are, unless they start with one of `strict`. Raises UnresolvedError, and
    ExpressionError for an expression that can't be evaluated.
    """
    if isinstance(value, str):
        return _in_text(value, scope, strict) if "{{" in value else value
    if isinstance(value, dict):
        changed = {k: new for k, old in value.items() if (new := substitute(old, scope, strict)) is not old}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [substitute(item, scope, strict) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def expand(scope: Scope) -> dict[str, Any]:
    """A flat scope as the nested one of expressions: `a.b.c` becomes a member of a member."""
    nested: dict[str, Any] = {}
    for name in sorted(scope, key=len, reverse=True):  # `inputs.parameters` gives way to `inputs.parameters.x`
        *holders, last = name.split(".")
        place = nested
        for holder in holders:
            place = place.setdefault(holder, {})
        place.setdefault(last, scope[name])
    return nested


def _in_text(text: str, scope: Scope, strict: tuple[str, ...]) -> str:
    done: list[str] = []
    rest = text
    while True:
        before, opening, after = rest.partition("{{")
        tag, closing, rest = after.partition("}}")
        if not closing:
            return "".join([*done, before, opening, tag])
        done.append(before)
        done.append(_expression(tag, scope, strict) if tag.startswith("=") else _reference(tag, scope, strict))


def _reference(tag: str, scope: Scope, strict: tuple[str, ...]) -> str:
    name = tag.strip()
    if name in scope:
        return scope[name]
    outer, opening, inner = tag.rpartition("{{")
    if opening and inner in scope:  # {{inputs.parameters.{{item}}}}: the inner one now, the outer one by the next pass
        return "{{" + outer + scope[inner]
    if any(name.startswith(prefix) for prefix in strict) and ".outputs.artifacts." not in name:  # those come later
        raise UnresolvedError(f"failed to resolve {{{{{tag}}}}}")
    return "{{" + tag + "}}"


def _expression(tag: str, scope: Scope, strict: tuple[str, ...]) -> str:
    try:
        value = evaluate(tag[1:].strip(), expand(scope))
    except UnknownNameError as error:
        name = str(error).removeprefix("unknown name ")
        if any(name.startswith(prefix) for prefix in strict):
            raise UnresolvedError(f"failed to evaluate expression: {name} is missing") from None
        return "{{" + tag + "}}"
    except ExpressionError as error:
        raise ExpressionError(f"failed to evaluate expression '{tag[1:].strip()}': {error}") from None
    if value is None:
        raise ExpressionError(f'failed to evaluate expression "{tag[1:].strip()}"')
    return show(value)
