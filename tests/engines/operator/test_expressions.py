"""Conditions of retries, `depends` and `when` decide whether work is done again, or at all."""

from __future__ import annotations

import pytest

from ffdl.engines.local.operator.expressions import (
    ExpressionError,
    UnknownNameError,
    evaluate,
    evaluate_condition,
    evaluate_when,
)

LAST = {
    "lastRetry": {"exitCode": "75", "status": "Failed", "message": "main: OOMKilled (exit code 137)", "duration": "3"}
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("asInt(lastRetry.exitCode) == 75", True),
        ("asInt(lastRetry.exitCode) in [-1, 75, 143]", True),
        ("asInt(lastRetry.exitCode) not in [-1, 75]", False),
        ("lastRetry.exitCode in ['75']", True),
        ("lastRetry.exitCode in [75]", False),
        ("lastRetry.message contains 'OOMKilled'", True),
        ("!(lastRetry.message contains 'OOMKilled')", False),
        ('not (lastRetry.message startsWith "main")', False),
        ("lastRetry.message endsWith ')'", True),
        ("lastRetry.message matches '^main: .* \\\\(exit code \\\\d+\\\\)$'", True),
        ("asFloat(lastRetry.duration) < 3.5 && asFloat(lastRetry.duration) >= 3", True),
        ("true || false && false", True),
        ("(true || false) && false", False),
        ("!true || true", True),
        ("1 + 2 * 3 - 4 / 2", 5),
        ("-2 ** 2", -4),
        ("2 ** 3 ** 2", 512),
        ("7 % 4", 3),
        ("len('abc') + len([1, 2])", 5),
        ("lastRetry['status'] + '!'", "Failed!"),
        ("[10, 20][1]", 20),
        ("lastRetry.status == 'Failed' ? 'again' : 'done'", "again"),
        ("nil ?? 'default'", "default"),
        ("nil == nil and 1 != nil", True),
        ('"a\\"b\\u0041"', 'a"bA'),
        ("upper(string(12) + 'a')", "12A"),
        ("false && unknown.name", False),  # short-circuit
    ],
)
def test_expr_subset(source: str, value: object) -> None:
    """What the compiler's and hand-written strategies say means here what it means to Argo."""
    found = evaluate(source, LAST)
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("sprig.trim('x')", "unknown function 'trim'"),
        ("now()", "unknown function 'now'"),
        ("lastRetry.exitcode == '75'", "unknown name lastRetry.exitcode"),
        ("other == 1", "unknown name other"),
        ("lastRetry.exitCode == 75", "mismatched types string and number"),
        ("lastRetry.exitCode < 75", "mismatched types string and number"),
        ("asInt('x') == 1", "int(x)"),
        ("1 && true", "&& (number)"),
        ("lastRetry.message contains 1", "contains (number)"),
        ("'a' matches '('", "invalid pattern"),
        ("1 / 0", "division by zero"),
        ("1 +", "unexpected end of expression"),
        ("(1", "expected ')'"),
        ("1 2", "unexpected '2'"),
        ("a.1", "expected a name"),
        ("import os", "unexpected 'os'"),
        ("$x", "Invalid token"),
        ("asInt(1, 2)", "takes 1 argument"),
        ("(" * 5000, "too deeply nested"),
        ("1" + " + 1" * 5000, "too long"),
    ],
)
def test_expression_errors_name_the_culprit(source: str, says: str) -> None:
    """A typo in a retry expression must not silently mean "never again"; and no expression can crash the engine."""
    with pytest.raises(ExpressionError) as caught:
        evaluate(source, LAST)
    assert says in str(caught.value)


def test_a_long_chain_of_conditions_is_fine() -> None:
    """A store step that depends on a thousand tasks is written as one long conjunction."""
    assert evaluate_condition(" && ".join(["true"] * 5000), {})


def test_condition_must_be_boolean() -> None:
    """`expression: asInt(lastRetry.exitCode)` is a mistake, not a yes."""
    with pytest.raises(ExpressionError, match="unable to cast"):
        evaluate_condition("asInt('1')", {})


def test_unknown_names_are_told_apart() -> None:
    """A template leaves an expression for later only when a name is missing, not when it is wrong."""
    with pytest.raises(UnknownNameError):
        evaluate("tasks.a.outputs", {})


@pytest.mark.parametrize(
    ("when", "runs"),
    [
        ("", True),
        ("Failed != Succeeded", True),
        ("Succeeded != Succeeded", False),
        ("'[]' != '[]'", False),
        ("'[4,5]' != '[]'", True),
        ("\"a b\" == 'a b'", True),
        ("yes == yes && 2 > 1", True),
        ("3 < 2 || no == no", True),
        ("!(a == b)", True),
        ("1 == '1'", False),
        ("true == true", True),
        ("true", True),
        ("learner-1 =~ 'x'", None),
        ("'learner-1' =~ '^learner'", True),
        ("'learner-1' !~ '^learner'", False),
        ("Failed in (Failed, Error)", True),
        ("Running in ('Failed', 'Error')", False),
        ("{{tasks.a.status}} == x", None),
        ("word", None),
        ("a ==", None),
        ("1 < x", None),
    ],
)
def test_when(when: str, runs: bool | None) -> None:
    """`when` compares bare words and quoted ones; what it can't read is an error that says to quote."""
    if runs is None:
        with pytest.raises(ExpressionError, match=r"when|boolean"):
            evaluate_when(when)
    else:
        assert evaluate_when(when) is runs
