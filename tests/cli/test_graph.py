"""`ffdl graph` at the command line; what is drawn is tested with the drawings."""

import xml.etree.ElementTree as ElementTree

import click
import pytest
import yaml

WORKFLOW = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"generateName": "flow-"},
    "spec": {
        "entrypoint": "main",
        "templates": [
            {
                "name": "main",
                "dag": {"tasks": [{"name": "b", "template": "say", "depends": "a"}, {"name": "a", "template": "say"}]},
            },
            {"name": "say", "container": {"image": "debian", "command": ["true"]}},
        ],
    },
}
TEXT = """\
STEP    TEMPLATE  AFTER
· flow  main
├─· a   say
└─· b   say       ← a
"""


@pytest.fixture
def file(shell):
    (shell.folder / "flow.yaml").write_text(yaml.safe_dump(WORKFLOW))
    return "flow.yaml"


def test_a_file_is_drawn_in_three_forms(shell, file):
    """For a terminal, a browser and Graphviz; nothing else is on standard output."""
    assert shell.ffdl("graph", file).stdout == TEXT
    assert ElementTree.fromstring(shell.ffdl("graph", file, "-o", "svg").stdout).tag.endswith("svg")
    assert shell.ffdl("graph", file, "-o", "dot").stdout.startswith('digraph "flow" {')


def test_a_terminal_gets_colours_and_lines_that_fit(shell):
    """Long names are cut, not wrapped."""
    shell.ffdl("init", "x" * 60)
    shown, code = shell.terminal("graph", f"{'x' * 60}/manifest.yml", columns=40)
    assert code == 0
    assert max(map(len, click.unstyle(shown).splitlines())) <= 40


def test_a_job_is_drawn_with_its_states(shell, file):
    """The same command tells how far it is."""
    shell.ffdl("run", file, "--name", "flow")
    assert shell.ffdl("graph", "flow").stdout == TEXT.replace("·", "✔")
    shell.ffdl("delete", "--all", "-y")


def test_a_manifest_is_drawn_as_the_workflow_that_it_becomes(shell):
    """What a job does, before it is submitted."""
    shell.ffdl("init", "hello")
    shown = shell.ffdl("graph", "hello/manifest.yml").stdout
    assert "├─· learner" in shown
    assert "← download" in shown


def test_what_can_not_be_drawn_is_said_in_one_line(shell, file):
    """With the line where it stands."""
    (shell.folder / "flow.yaml").write_text(yaml.safe_dump(WORKFLOW).replace("entrypoint: main", "entrypoint: [main]"))
    assert shell.fails("graph", file) == "flow.yaml:6: spec.entrypoint: should be text"
    assert "No such file" in shell.fails("graph", "missing.yaml")
    assert "no job 'missing'" in shell.fails("graph", "missing")
