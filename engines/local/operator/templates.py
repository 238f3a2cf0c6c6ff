"""Substitution of `{{…}}`: references to parameters, and `{{=…}}` expressions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .expressions import ExpressionError, evaluate, parse, show
from .expressions.argo import ADDED
from .expressions.lexer import tokens
from .expressions.supported import identifiers

Scope = Mapping[str, str]  # flat: "inputs.parameters.x" -> value

EVERYTHING = ("",)  # as `strict`: every reference must resolve
OUTPUTS = ("tasks.", "steps.")  # as `strict`: those to other tasks' outputs must, others wait for later

# Names that become known later: an expression is not worked out without them, whatever it makes of nil.
_NOT_YET = (
    "item", "retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message",
    "workflow.status", "workflow.failures",
)  # fmt: skip


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


def has_expression(value: Any) -> bool:
    """Whether one of the strings in `value` holds an expression."""
    if isinstance(value, str):
        return "{{=" in value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(has_expression(each) for each in inner)


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
    """The value of `{{=…}}` as text, or the tag as it is where names are missing that a later pass may know."""
    missing: list[str] = []
    source, names = tag[1:], {**expand(scope), **ADDED}
    unresolved = "{{" + tag + "}}"
    try:
        missing = [name for name in identifiers(parse(source)) if not _holds(names, name)]
        for name in missing:
            if any(f"{name}.".startswith(prefix) for prefix in strict):
                raise UnresolvedError(f"failed to evaluate expression: {name} is missing")
        if missing and any(_mentions(source, name) and not _holds(names, name) for name in _NOT_YET):
            return unresolved
        value = evaluate(source, names)
    except ExpressionError as error:
        if missing:
            return unresolved
        raise ExpressionError(f"failed to evaluate expression: {error}") from None
    try:
        if value is None:
            raise ExpressionError(f"failed to evaluate expression {json.dumps(source, ensure_ascii=False)}")
        return show(value)
    except ExpressionError:
        if missing:
            return unresolved
        raise


def _holds(names: Mapping[str, Any], name: str) -> bool:
    holder: Any = names
    for part in name.split("."):
        if not isinstance(holder, Mapping) or part not in holder:
            return False
        holder = holder[part]
    return True


def _mentions(source: str, name: str) -> bool:
    """Whether the words of `name` are among those of an expression, one after the other."""
    if name not in source:
        return False
    words, wanted = [token.text for token in tokens(source)], name.replace(".", " . ").split()
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))
