"""References in a Workflow are how a job's id, a learner's index and outputs reach its pods."""

from __future__ import annotations

import pytest

from ffdl.engines.local.operator.expressions import ExpressionError
from ffdl.engines.local.operator.templates import EVERYTHING, OUTPUTS, UnresolvedError, substitute

SCOPE = {
    "workflow.name": "wf",
    "inputs.parameters.x": "5",
    "inputs.parameters.key": "x",
    "tasks.a-b.outputs.parameters.list": "[1,2]",
    "retries": "0",
}


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("plain", "plain"),
        ("{{workflow.name}}-{{ inputs.parameters.x }}", "wf-5"),
        ("{{unknown}} {{item}}", "{{unknown}} {{item}}"),
        ("{{inputs.parameters.{{inputs.parameters.key}}}}", "{{inputs.parameters.x}}"),
        ("{{=1+1}}", "2"),
        ("{{= asInt(inputs.parameters.x) * 2 }}/{{=workflow.name}}", "10/wf"),
        ("{{=tasks['a-b'].outputs.parameters.list}}", "[1,2]"),
        ("{{=[1, 'a']}}", '[1,"a"]'),
        ("{{=item + 1}}", "{{=item + 1}}"),
        ("open {{workflow.name", "open {{workflow.name"),
        ("}} {{workflow.name}} }}", "}} wf }}"),
    ],
)
def test_text(text: str, done: str) -> None:
    """What is known is put in, what isn't yet stays for the pass that knows it."""
    assert substitute(text, SCOPE) == done


def test_unchanged_parts_are_shared() -> None:
    """A thousand learners' requests share what they have in common, or memory would not suffice."""
    value = {"a": [{"b": "c"}], "d": "{{workflow.name}}"}
    done = substitute(value, SCOPE)
    assert done == {"a": [{"b": "c"}], "d": "wf"}
    assert done["a"] is value["a"]
    assert value["d"] == "{{workflow.name}}"


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("{{tasks.a-b.outputs.parameters.other}}", OUTPUTS),
        ("{{=tasks.c.outputs.parameters.other}}", OUTPUTS),
        ("{{item.other}}", EVERYTHING),
    ],
)
def test_strict_references_must_resolve(text: str, strict: tuple[str, ...]) -> None:
    """A task must not be started with the text `{{tasks.…}}` where a value should be."""
    with pytest.raises(UnresolvedError, match=r"other|tasks\.c"):
        substitute({"x": [text]}, SCOPE, strict)


def test_wrong_expression_is_an_error() -> None:
    """Wrong is not the same as not known yet."""
    with pytest.raises(ExpressionError, match="divide by zero"):
        substitute("{{=1 % 0}}", SCOPE)
