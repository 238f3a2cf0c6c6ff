"""`ffdl lint` on Argo Workflows: all that would be refused, with its line, before a cluster is asked."""

import json

import pytest

WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: flow-}
spec:
  entrypoint: main
  templates:
    - name: main
      dag:
        tasks:
          - {name: a, template: say}
          - {name: b, template: say, depends: a}
    - name: say
      container: {image: debian, command: [echo, hello]}
"""


def lint(shell, text, *options, code=2, name="flow.yaml"):
    (shell.folder / name).write_text(text)
    found = json.loads(shell.ffdl("lint", name, "-o", "json", *options, code=code).stdout)
    return [(each["line"], each["class"], each["message"]) for each in found]


def test_a_sound_workflow_passes(shell):
    """The exit code is for CI, the words for people."""
    (shell.folder / "flow.yaml").write_text(WORKFLOW)
    assert shell.ffdl("lint", "flow.yaml").stderr == "flow.yaml: nothing is wrong\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("{name: b, template: say", "{name: b, template: sya", 11, "template name 'sya' undefined"),
        ("depends: a}", "depends: b}", 11, "cycle"),
        ("depends: a}", "depends: c}", 11, "c"),
        ("{name: b,", "{name: a,", 11, "duplicated nodeName a"),
        ("hello]", "'{{inputs.parameters.x}}']", 13, "failed to resolve {{inputs.parameters.x}}"),
        ("entrypoint: main", "entrypont: main", 5, "unknown field; did you mean entrypoint?"),
        ("{name: b,", "{name: n,", 11, "should be text; put 'n' in quotes"),
        ("entrypoint: main", "entrypoint: main\n  hooks: 3", 6, "spec.hooks"),
    ],
)
def test_what_the_controller_refuses_is_found_with_its_line(shell, old, new, line, said):
    """A cluster says it minutes later, and not where."""
    found = lint(shell, WORKFLOW.replace(old, new))
    assert any(at == line and kind == "invalid" and said in message for at, kind, message in found), found


def test_what_only_this_engine_refuses_is_a_class_of_its_own(shell):
    """The same file may be meant for a cluster: `--cluster` asks for what Argo minds."""
    locks = "  synchronization: {mutexes: [{name: x}]}\n  entrypoint: main"
    text = WORKFLOW.replace("  entrypoint: main", locks)
    ((line, kind, said),) = lint(shell, text)
    assert (line, kind) == (5, "unsupported")
    assert said.startswith("spec.synchronization: not executed by the embedded engine")
    assert lint(shell, text, "--cluster", code=0) == []


def test_what_has_no_effect_here_is_a_note(shell):
    """Nobody should wonder why a node selector selects nothing; nobody's CI should fail for it."""
    text = WORKFLOW.replace("  entrypoint: main", "  nodeSelector: {gpu: yes please}\n  entrypoint: main")
    said = "spec.nodeSelector: there is one machine, nothing to be placed"
    assert lint(shell, text, code=0) == [(5, "no-effect", said)]
    assert shell.ffdl("lint", "flow.yaml").stderr == f"Note: flow.yaml:5: {said}\nflow.yaml: nothing is wrong\n"
    assert lint(shell, text, "--cluster", code=0) == []


def test_several_documents_and_folders(shell):
    """A repository of Workflows is checked with one command."""
    folder = shell.folder / "workflows" / "deeper"
    folder.mkdir(parents=True)
    nightly = WORKFLOW.replace("kind: Workflow", "kind: CronWorkflow").replace(
        "{generateName: flow-}", "{name: nightly}"
    )
    head, spec = nightly.split("spec:\n")
    spec = "  " + spec.rstrip().replace("\n", "\n  ").replace("entrypoint: main", "entrypoint: mian")
    library = WORKFLOW.replace("kind: Workflow", "kind: WorkflowTemplate").replace("  entrypoint: main\n", "")
    (folder / "all.yaml").write_text(f"{WORKFLOW}---\n{head}spec:\n  schedule: '0 3 * * *'\n  workflowSpec:\n{spec}\n")
    (folder / "library.yml").write_text(library.replace("{generateName: flow-}", "{name: library}"))
    (folder / "secret.yaml").write_text("kind: Secret\nmetadata: {name: x}\ndata:\n  key: plain text\n")
    (folder / "values.yaml").write_text("not: an object\n")
    (folder / "notes.txt").write_text("not yaml: [")
    done = shell.ffdl("lint", "workflows", code=2)
    assert done.stdout.splitlines() == [
        "workflows/deeper/all.yaml:21: template name 'mian' undefined",
        "workflows/deeper/secret.yaml:4: 'key' is not base64; plain text belongs in stringData",
    ]


def test_templates_of_others_are_looked_for_in_what_is_given(shell):
    """A reference that leads nowhere fails on the cluster only when its task begins."""
    text = WORKFLOW.replace("{name: a, template: say}", "{name: a, templateRef: {name: library, template: say}}")
    said = "workflow template library not found; put it in the file, or name its folder (--templates)"
    assert (10, "unresolved", said) in lint(shell, text)
    library = WORKFLOW.replace(": Workflow", ": WorkflowTemplate").replace("generateName: flow-", "name: library")
    assert lint(shell, f"{text}---\n{library}", "--cluster", code=0) == []
    wrong = text.replace("library, template: say", "library, template: none")
    said = "template none not found in workflow template library"
    assert (10, "unresolved", said) in lint(shell, f"{wrong}---\n{library}")


def test_a_kind_that_does_not_exist_is_a_problem_and_another_one_a_warning(shell):
    """The commonest slip in a file that a pipeline of checks is to stop."""
    said = "kind Workfow does not exist; write Workflow"
    assert lint(shell, WORKFLOW.replace("kind: Workflow", "kind: Workfow")) == [(2, "invalid", said)]
    job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n"
    ((line, kind, said),) = lint(shell, job, code=0)
    assert (line, kind) == (2, "warning")
    assert "kind Job" in said


def test_manifests_and_workflows_are_not_taken_for_one_another(shell):
    """The wrong verb is told the right one."""
    shell.ffdl("init", "hello")
    (shell.folder / "flow.yaml").write_text(WORKFLOW)
    assert shell.fails("train", "flow.yaml").endswith("`ffdl run` takes a Workflow")
    assert shell.fails("run", "hello/manifest.yml").endswith("`ffdl train` takes it")


def test_manifests_are_linted_by_the_same_verb(shell):
    """Told apart by what is in the file."""
    shell.ffdl("init", "hello")
    (shell.folder / "flow.yaml").write_text(WORKFLOW)
    assert shell.ffdl("lint", "hello/manifest.yml", "flow.yaml").stderr == "2 files: nothing is wrong\n"
