"""Conditions decide whether work is done again, or at all: they must mean here what they mean on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.engines.local.operator.depends import task_results
from ffdl.engines.local.operator.expressions import (
    ExpressionError,
    Fields,
    evaluate,
    evaluate_condition,
    evaluate_when,
    show,
)
from ffdl.engines.local.operator.templates import UnresolvedError, expand, substitute

FILE = Path(__file__).with_name("expressions.yml")
TABLE = yaml.load(FILE.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
NAMES = expand(TABLE["names"])
TASKS = {name.replace("-", "_"): Fields(task_results({"phase": phase}, None)) for name, phase in TABLE["tasks"].items()}

Case = dict[str, Any]


def as_told(case: Case, work: Any) -> None:
    """`work` gives the value, or raises the error, that the real libraries gave or raised."""
    if "says" in case:
        with pytest.raises((ExpressionError, UnresolvedError)) as caught:
            work()
        assert str(caught.value).partition("\n |")[0] == case["says"]
        return
    value = work()
    assert value == case["is"]
    assert isinstance(value, bool) == isinstance(case["is"], bool)


def of(case: Case) -> str:
    return str(case["of"])


@pytest.mark.parametrize("case", TABLE["expressions"], ids=of)
def test_expressions(case: Case) -> None:
    """`{{=…}}`, conditions of retries and hooks, outputs: values and errors are expr-lang's and sprig's."""

    def work() -> Any:
        value = evaluate(case["of"], NAMES)
        return value if isinstance(value, str) else json.loads(show(value))

    as_told(case, work)


@pytest.mark.parametrize("case", TABLE["conditions"], ids=of)
def test_conditions(case: Case) -> None:
    """Retries and hooks go by a yes or a no; anything else is a mistake, and told as one."""
    as_told(case, lambda: evaluate_condition(case["of"], NAMES))


@pytest.mark.parametrize("case", TABLE["when"], ids=of)
def test_when(case: Case) -> None:
    """`when` compares bare words and quoted ones; what it can't read is an error that says to quote."""
    as_told(case, lambda: evaluate_when(case["of"]))


@pytest.mark.parametrize("case", TABLE["depends"], ids=of)
def test_depends(case: Case) -> None:
    """A task waits for what its `depends` says, in Argo's reading."""
    as_told(case, lambda: evaluate_condition(case["of"].replace("-", "_"), TASKS))


@pytest.mark.parametrize("case", TABLE["templates"], ids=of)
def test_templates(case: Case) -> None:
    """What can't be known yet stays for the pass that knows it; what is wrong is told at once."""
    as_told(case, lambda: substitute(case["of"], TABLE["names"], tuple(case.get("strict", ()))))


def test_an_error_shows_the_place() -> None:
    """The message of a node is all that a user sees of it."""
    with pytest.raises(ExpressionError) as caught:
        evaluate("true and\n  retries == 1", NAMES)
    assert str(caught.value).splitlines() == [
        "invalid operation: == (mismatched types string and int) (2:11)",
        " |   retries == 1",
        " | ..........^",
    ]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("(" * 5000, "too deeply nested"),
        ("!" * 5000 + "true", "too deeply nested"),
        ("[" * 5000, "too deeply nested"),
        ("a" + ".a" * 5000, "too deeply nested"),
        ("1" + " | string()" * 5000, "too deeply nested"),
        ("if true {1} else " * 5000 + "{2}", "too deeply nested"),
        ("1" + " + 1" * 100000, "exceeds maximum allowed nodes"),
        ("1..1000000000", "memory budget exceeded"),
        ("repeat('x', 1000000000)", "memory budget exceeded"),
        ("map(1..1000, 1..1000)", "memory budget exceeded"),
        ("sprig.until(1000000000)", "memory budget exceeded"),
        ("sprig.repeat(1000000000, 'x')", "memory budget exceeded"),
        ("bitshl(1, 1000000000000)", ""),
    ],
)
def test_no_expression_can_crash_the_engine(source: str, says: str) -> None:
    """A Workflow's author may write anything; the runner has other jobs' learners to look after."""
    if not says:
        evaluate(source, {})
        return
    with pytest.raises(ExpressionError, match=says):
        evaluate(source, {})


def test_long_conditions_are_fine() -> None:
    """A store step that depends on thousands of tasks is written as one long conjunction."""
    assert evaluate_condition(" && ".join(["true"] * 4000), {})
    assert evaluate("+".join(["1"] * 4000), {}) == 4000


def test_when_is_not_read_for_ever() -> None:
    """The same holds of `when`, which a parameter may have made long."""
    assert evaluate_when(" || ".join(["a == b"] * 100) + " || a == a")
    for source, says in ((" && ".join(["a == a"] * 5000), "too long"), ("(" * 200 + "true" + ")" * 200, "too deeply")):
        with pytest.raises(ExpressionError, match=says):
            evaluate_when(source)
