"""Checks and drawings of Workflows that people got wrong in every way there is."""

import copy
import json
import random

import pytest

from ffdl.engines.graph import drawing
from ffdl.engines.graph.svg import svg
from ffdl.engines.lint import findings
from ffdl.workflows.errors import ManifestError
from ffdl.workflows.objects import read
from ffdl.workflows.submission import submission
from ffdl.workflows.template_refs import Library

LEAF = {"image": "debian", "command": ["sh", "-c", "echo {{inputs.parameters.x}}"]}
PARAMETERS = {"parameters": [{"name": "x", "value": "{{item}}"}]}
WORKFLOW = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"generateName": "w-", "labels": {"a": "b"}},
    "spec": {
        "entrypoint": "main",
        "onExit": "leaf",
        "arguments": {"parameters": [{"name": "x", "value": 1}]},
        "podGC": {"strategy": "OnPodCompletion"},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "templates": [
            {
                "name": "main",
                "dag": {
                    "tasks": [
                        {"name": "a", "template": "leaf", "withItems": [1, {"k": 2}], "arguments": PARAMETERS},
                        {"name": "b", "depends": "a.Succeeded || a.Failed", "template": "steps", "when": "1 == 1"},
                        {
                            "name": "c",
                            "templateRef": {"name": "library", "template": "t"},
                            "hooks": {"exit": {"template": "leaf"}},
                        },
                    ]
                },
                "metrics": {"prometheus": [{"name": "m", "help": "h", "counter": {"value": "1"}}]},
            },
            {
                "name": "steps",
                "steps": [[{"name": "s", "template": "leaf", "arguments": PARAMETERS, "withParam": "[1]"}]],
            },
            {
                "name": "leaf",
                "inputs": {
                    "parameters": [{"name": "x", "default": "d"}],
                    "artifacts": [{"name": "f", "path": "/f", "optional": True}],
                },
                "outputs": {"parameters": [{"name": "o", "valueFrom": {"path": "/o", "default": "d"}}]},
                "retryStrategy": {
                    "limit": 2,
                    "backoff": {"duration": "1s"},
                    "expression": "lastRetry.status == 'Error'",
                },
                "container": {
                    **LEAF,
                    "env": [{"name": "E", "value": "1"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                },
                "sidecars": [{**LEAF, "name": "side"}],
            },
        ],
    },
}
ODD = [
    None,
    3,
    -1,
    1.5,
    True,
    "",
    "x",
    "{{",
    "{{=1+}}",
    "{{inputs.parameters.no}}",
    [],
    {},
    [1],
    ["a"],
    [{}],
    [[]],
    [None],
    {"a": 1},
]
KEYS = ["name", "template", "depends", "withItems", "dag", "steps", "inputs", "hooks", "suspend", "script", "zzz"]


def places(value):
    """Every holder and key below `value`."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def broken(rng):
    """The Workflow with one to three parts changed, removed or added."""
    made = copy.deepcopy(WORKFLOW)
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(list(places(made)))
        how = rng.random()
        if how < 0.2:
            del holder[key]
        elif how < 0.4 and isinstance(holder, dict):
            holder[rng.choice(KEYS)] = copy.deepcopy(rng.choice(ODD))
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
    return made


@pytest.mark.parametrize("seed", range(8))
def test_every_mistake_gets_an_answer(seed):
    """No file may end in a traceback; each thing said of it has a place in it; what has a shape can be drawn."""
    rng = random.Random(seed)
    for _ in range(60):
        text = json.dumps(broken(rng), indent=1)
        try:
            objects = read(text.encode(), "x")
            found = findings(objects)
            made = submission(objects)
        except ManifestError as error:
            if not error.problems:
                pytest.fail(f"nothing is said of {text}")
            continue
        assert all(0 < each.problem.line <= text.count("\n") + 1 for each in found)
        if not any(each.malformed for each in found):
            assert svg(drawing(Library(made.library).joined(made.workflow)), "x")


def test_the_workflow_that_is_broken_is_sound():
    """Else the test above would look at one mistake only."""
    library = {
        **WORKFLOW,
        "kind": "WorkflowTemplate",
        "metadata": {"name": "library"},
        "spec": {"templates": [{"name": "t", "container": LEAF}]},
    }
    library["spec"]["templates"][0] |= {"inputs": {"parameters": [{"name": "x", "default": "d"}]}}
    objects = read(f"{json.dumps(WORKFLOW)}\n---\n{json.dumps(library)}".encode(), "x")
    assert {each.kind for each in findings(objects)} == {"no-effect"}
