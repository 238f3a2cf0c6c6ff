"""`ffdl run`, and what a user does with an Argo Workflow on one machine: look at it, read logs, stop and resume it."""

import json
import os
import signal
import tarfile
import time

import click
import pytest
import yaml

from ffdl.engines.local.engine import LocalEngine
from tests.cli.shell import PATIENCE, Terminal

API = "argoproj.io/v1alpha1"


@pytest.fixture
def runner(shell):
    """The shell; its jobs are deleted afterwards, so that none outlives the test."""
    yield shell
    shell.ffdl("delete", "--all", "-y")


def sh(name, command, *inputs, **more):
    template = {"name": name, "container": {"image": "debian", "command": ["sh", "-c", command]}, **more}
    return template | ({"inputs": {"parameters": [{"name": i} for i in inputs]}} if inputs else {})


def dag(name, **tasks):
    """Tasks by name: `"TEMPLATE"` or `"TEMPLATE after A && B"`."""
    listed = []
    for task, words in tasks.items():
        template, _, depends = words.partition(" after ")
        listed.append({"name": task, "template": template} | ({"depends": depends} if depends else {}))
    return {"name": name, "dag": {"tasks": listed}}


def workflow(*templates, name="flow", kind="Workflow", **spec):
    spec = {"entrypoint": templates[0]["name"], "templates": list(templates), **spec}
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def write(shell, *objects, name="flow.yaml"):
    (shell.folder / name).write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return name


DIAMOND = (
    dag("main", a="say", b="say after a", c="say after a", d="say after b && c"),
    sh("say", "echo I am {{pod.name}}"),
)


def test_a_workflow_runs_to_its_end_before_the_users_eyes(runner):
    """The file that a cluster takes runs here: each node's change is a line, the exit code is the Workflow's."""
    done = runner.ffdl("run", write(runner, workflow(*DIAMOND)))
    words = [line.split()[1:4] for line in done.stdout.splitlines()]
    assert words[0] == ["●", "Running", "flow"]
    assert words[-1] == ["✔", "Succeeded", "flow"]
    ended = [node for _, phase, node in words if phase == "Succeeded"]
    assert (ended[0], ended[-2:]) == ("a", ["d", "flow"])
    assert done.stderr == "flow Succeeded\n"
    assert runner.ffdl("status", "flow").stdout == "COMPLETED\n"


def test_a_workflow_that_calls_itself_for_ever_ends(runner):
    """Argo's depth, Argo's words: neither the engine nor what shows the tree is taken along."""
    done = runner.ffdl("run", write(runner, workflow(dag("main", again="main"))), code=1)
    words = (
        "Maximum recursion depth exceeded. "
        "See https://argo-workflows.readthedocs.io/en/latest/scaling/#maximum-recursion-depth"
    )
    (line,) = [line for line in done.stdout.splitlines() if words in line]
    assert line.split()[2:4] == ["Error", ".".join(["again"] * 99)]
    assert done.stderr == f"flow Error: again: {words}\n"
    assert runner.ffdl("show", "flow").stdout.count(words) == 2
    assert runner.ffdl("graph", "flow", "-o", "dot").stdout.count("subgraph") >= 98


def test_a_terminal_shows_the_tree_that_grows(runner):
    """One picture of what runs in what, in place, instead of lines that scroll away."""
    nested = (dag("main", outer="inner"), {"name": "inner", "steps": [[{"name": "x", "template": "say"}]]})
    shown, code = runner.terminal("run", write(runner, workflow(*nested, sh("say", "true"))))
    assert code == 0
    last = click.unstyle(shown).rpartition("STEP ")[2].splitlines()
    assert [line.split("  main")[0].split("  inner")[0].split("  say")[0].rstrip() for line in last[1:]] == [
        "✔ flow",
        "└─✔ outer",
        "  └─✔ x",
        "flow Succeeded",
    ]
    assert "\x1b[" in shown


def test_a_failure_is_code_1_with_the_reason_and_the_last_lines(runner):
    """Why it failed must be on the screen, not three commands away."""
    templates = (dag("main", ok="fine", bad="wrong", never="fine after bad"), sh("fine", "echo fine"))
    wrong = sh("wrong", "seq 100; echo no such file >&2; exit 3", retryStrategy={"limit": 1})
    done = runner.ffdl("run", write(runner, workflow(*templates, wrong)), code=1)
    assert "  100\n  no such file\nflow Failed: bad(1): main: Error (exit code 3)" in done.stderr
    assert "omitted: depends condition not met" in done.stdout
    shown = runner.ffdl("show", "flow").stdout
    assert "(attempt 2)" in shown
    assert "├─✖ bad(1)" in shown.replace("│ └─", "├─")


def test_logs_say_whose_line_it_is_and_one_nodes_can_be_had(runner):
    """While it runs and for as long as it is kept."""
    main = dag("main", build="inner", test="say after build")
    inner = {"name": "inner", "steps": [[{"name": "each", "template": "say", "withItems": ["x", "z"]}]]}
    file = write(runner, workflow(main, inner, sh("say", "echo hello; echo world")))
    done = runner.ffdl("run", file, "--logs")
    assert sorted(done.stdout.splitlines()) == sorted(
        f"{node} | {word}" for node in ("build.each(0:x)", "build.each(1:z)", "test") for word in ("hello", "world")
    )
    assert "Succeeded  build" in done.stderr
    assert runner.ffdl("logs", "flow", "--step", "test").stdout == "hello\nworld\n"
    lines = runner.ffdl("logs", "flow", "--step", "build.each", "--tail", "1").stdout.splitlines()
    assert sorted(lines) == ["build.each(0:x) | world", "build.each(1:z) | world"]
    assert len(runner.ffdl("logs", "flow").stdout.splitlines()) == 6


def test_each_container_of_a_pod_has_its_log(runner):
    """A container set's are nodes of their own; a sidecar's is there for whoever asks for it."""
    several = [
        {"name": "first", "image": "debian", "command": ["echo", "one"]},
        {"name": "main", "image": "debian", "command": ["echo", "two"], "dependencies": ["first"]},
    ]
    place = [{"name": "place", "mountPath": "/place"}]
    helping = ["sh", "-c", "echo helping; touch /place/helped; sleep 60"]
    helper = {"name": "helper", "image": "debian", "command": helping, "volumeMounts": place}
    both = {"name": "set", "containerSet": {"containers": several}}
    work = sh("work", "until [ -e /place/helped ]; do sleep 0.05; done; echo work", sidecars=[helper])
    work["container"]["volumeMounts"] = place
    volumes = [{"name": "place", "emptyDir": {}}]
    main = dag("main", set="set", work="work after set")
    runner.ffdl("run", write(runner, workflow(main, both, work, volumes=volumes)))
    assert runner.ffdl("logs", "flow").stdout == "set.first | one\nset.main | two\nwork | work\n"
    assert runner.ffdl("logs", "flow", "--step", "set.first").stdout == "one\n"
    assert runner.ffdl("logs", "flow", "--step", "work.helper").stdout == "helping\n"


def test_a_node_that_is_not_there_is_named(runner):
    """An empty answer would look like an empty log."""
    runner.ffdl("run", write(runner, workflow(*DIAMOND)))
    said = runner.fails("logs", "flow", "--step", "x")
    assert said == "flow has no node x that wrote anything; there are a, b, c and d"


def test_parameters_come_from_the_command_line_and_a_file(runner):
    """As with `argo submit -p`; a name that nobody reads is a slip that must not pass."""
    given = {"parameters": [{"name": "word", "value": "hello"}, {"name": "times", "value": 1}]}
    template = sh("main", "for i in $(seq {{workflow.parameters.times}}); do echo {{workflow.parameters.word}}; done")
    file = write(runner, workflow(template, arguments=given))
    (runner.folder / "values.json").write_text('{"word": "from the file", "times": 2}')
    done = runner.ffdl("run", file, "-p", "word=a=b", "--param-file", "values.json", "--logs")
    assert done.stdout == "flow | a=b\nflow | a=b\n"
    assert "-p wrod: the Workflow has no such parameter; did you mean word?" in runner.fails(
        "run", file, "-p", "wrod=x"
    )
    assert "write it as NAME=VALUE" in runner.fails("run", file, "-p", "word")


def test_another_entrypoint_and_name(runner):
    """One template of a large Workflow is tried by itself."""
    file = write(runner, workflow(*DIAMOND, sh("greet", "echo {{inputs.parameters.whom}}", "whom")))
    arguments = ("--entrypoint", "greet", "--name", "mine", "-p", "whom=you", "--logs")
    assert runner.ffdl("run", file, *arguments).stdout == "mine | you\n"
    assert "there are main, say and greet" in runner.fails("run", file, "--entrypoint", "other")


def test_scripts_get_the_whole_workflow(runner):
    """`-o json` prints the object as `argo get -o json` would, and nothing else."""
    file = write(runner, workflow(*DIAMOND))
    made = json.loads(runner.ffdl("run", file, "-o", "json").stdout)
    assert (made["kind"], made["status"]["phase"], len(made["status"]["nodes"])) == ("Workflow", "Succeeded", 5)
    assert runner.ffdl("run", file, "--replace", "-o", "name").stdout == "flow\n"
    failing = write(runner, workflow(sh("main", "exit 1"), name="red"))
    assert json.loads(runner.ffdl("run", failing, "-o", "json", code=1).stdout)["status"]["phase"] == "Failed"


def test_scripts_get_its_nodes(runner):
    """A script asks which step failed, how, and at which attempt, without knowing how Argo writes nodes down."""
    bad = sh("bad", "exit 3", retryStrategy={"limit": 1})
    runner.ffdl("run", write(runner, workflow(dag("main", a="good", b="bad after a"), sh("good", "true"), bad)), code=1)
    nodes = json.loads(runner.ffdl("show", "flow", "-o", "json").stdout)["nodes"]
    assert [(node["name"], node["phase"], node["attempt"], node["exit_code"]) for node in nodes] == [
        ("flow", "Failed", 1, None),
        ("a", "Succeeded", 1, 0),
        ("b", "Failed", 2, 3),
        ("b(0)", "Failed", 1, 3),
        ("b(1)", "Failed", 1, 3),
    ]


def test_what_lies_beside_it_is_used(runner):
    """One file can hold all that a Workflow needs: nobody has a cluster to put Secrets into first."""
    env = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}
    template = sh("main", "cat /words/greeting; echo $TOKEN")
    template["container"] |= {"env": [env], "volumeMounts": [{"name": "w", "mountPath": "/words"}]}
    objects = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}, "data": {"greeting": "hello\n"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": {"token": "Z2VoZWlt"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}},
    ]
    made = workflow(
        template, volumes=[{"name": "w", "configMap": {"name": "words"}}], podGC={"strategy": "OnPodSuccess"}
    )
    file = write(runner, *objects, made)
    done = runner.ffdl("run", file, "--logs")
    assert done.stdout == "flow | hello\nflow | geheim\n"
    notes = [line.removeprefix("Note: ") for line in done.stderr.splitlines() if line.startswith("Note: ")]
    assert notes[0] == f"{line_of(runner, file, 'kind: Service', -1)}: Service web is left out: nothing here reads it"
    assert notes[1].startswith(f"{line_of(runner, file, '  podGC:')}: spec.podGC: ")
    assert len(notes) == 2


def line_of(shell, file, text, offset=0):
    """`FILE:LINE` of the line that is `text`."""
    return f"{file}:{(shell.folder / file).read_text().splitlines().index(text) + 1 + offset}"


@pytest.mark.parametrize("kind", ["CronWorkflow", "WorkflowTemplate"])
def test_what_would_be_run_later_can_be_run_now(runner, kind):
    """A nightly job is tried by day."""
    made = workflow(sh("main", "echo now"), name="nightly", kind=kind)
    if kind == "CronWorkflow":
        made["spec"] = {"schedule": "0 3 * * *", "workflowSpec": made["spec"]}
    done = runner.ffdl("run", write(runner, made), "--logs")
    name, _, line = done.stdout.partition(" | ")
    assert line == "now\n"
    assert name.startswith("nightly-")


def test_what_can_not_run_ends_before_anything_does_with_its_line(runner):
    """A file that is half understood must not half run."""
    file = write(runner, workflow(dag("main", a="gone"), sh("say", "true"), hostNetwork=True, shutdown="Maybe"))
    done = runner.ffdl("run", file, code=2)
    assert f"{line_of(runner, file, '        template: gone')}: template name 'gone' undefined" in done.stderr
    assert f"{line_of(runner, file, '  shutdown: Maybe')}: spec.shutdown: Maybe: not executed" in done.stderr
    assert runner.ffdl("list", "-o", "name").stdout == ""
    (runner.folder / "tab.yaml").write_text("kind: Workflow\nspec:\n\tentrypoint: x\n")
    assert runner.fails("run", "tab.yaml") == "tab.yaml:3: a tab stands in the indentation; use spaces"
    (runner.folder / "empty.yaml").write_text("")
    assert runner.fails("run", "empty.yaml") == "empty.yaml: has no Workflow to run; there is nothing"
    assert "No such file" in runner.fails("run", "missing.yaml")


def test_ctrl_c_ends_the_watching_only_and_says_how_to_go_on(runner):
    """Nobody loses an hour's work by a key; the commands for both wishes are told."""
    with Terminal(runner, "run", write(runner, workflow(sh("main", "sleep 600")))) as screen:
        screen.until("flow  main")
        screen.type("\x03")
        shown, code = screen.end()
    assert code == 130
    assert "`ffdl stop flow` ends it" in shown
    assert runner.ffdl("status", "flow").stdout == "PROCESSING\n"
    runner.ffdl("stop", "flow")
    done = runner.ffdl("wait", "flow", code=1)
    assert "flow FAILED" in done.stderr
    assert "Stopped with strategy 'Stop'" in runner.ffdl("show", "flow").stdout


def test_a_detached_run_goes_on_when_its_runner_is_killed(runner):
    """State is the job's folder: whoever looks next takes over."""
    file = write(runner, workflow(dag("main", a="nap", b="nap after a"), sh("nap", "sleep 1; echo slept")))
    assert runner.ffdl("run", file, "--detach").stdout == "flow\n"
    runner_of = until(lambda: processes("ffdl-runner", str(runner.home)))
    os.kill(runner_of[0], signal.SIGKILL)
    runner.ffdl("wait", "flow")
    assert runner.ffdl("logs", "flow").stdout == "a | slept\nb | slept\n"


def processes(name, word):
    """Those of this name with `word` in their command line; others come and go meanwhile."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/cmdline") as command:
                found += [int(pid)] * (comm.read().strip() == name and word in command.read())
        except OSError:
            continue
    return found


def until(look):
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_a_halted_workflow_starts_nothing_until_it_is_resumed(runner):
    """Argo's suspend: what runs goes on, nothing new begins; no process of ours is left."""
    place = runner.folder / "place"
    place.mkdir()
    nap = sh("nap", "touch /place/begun; until [ -e /place/asked ]; do sleep 0.05; done")
    nap["container"]["volumeMounts"] = [{"name": "place", "mountPath": "/place"}]
    volumes = [{"name": "place", "hostPath": {"path": str(place)}}]
    main = dag("main", a="nap", b="nap after a")
    runner.ffdl("run", write(runner, workflow(main, nap, volumes=volumes)), "--detach")
    until((place / "begun").exists)
    runner.ffdl("halt", "flow", "--no-wait")
    (place / "asked").touch()  # not before: `b` must not have begun when the halt comes
    runner.ffdl("halt", "flow")
    (place / "begun").unlink()
    assert runner.ffdl("status", "flow").stdout == "HALTED\n"
    runner.ffdl("wait", "flow", code=3)
    assert not (place / "begun").exists()
    runner.ffdl("resume", "flow")
    runner.ffdl("wait", "flow")
    nodes = LocalEngine(runner.home).workflow("flow")["status"]["nodes"].values()
    assert sorted(node["displayName"] for node in nodes) == ["a", "b", "flow"]


ASK = {
    "name": "ask",
    "suspend": {},
    "outputs": {"parameters": [{"name": "answer", "valueFrom": {"supplied": {}, "default": "nothing"}}]},
}
HEARD = {"parameters": [{"name": "m", "value": "{{steps.ask.outputs.parameters.answer}}"}]}
ASKING = (
    {
        "name": "main",
        "steps": [[{"name": "ask", "template": "ask"}], [{"name": "say", "template": "say", "arguments": HEARD}]],
    },
    ASK,
    sh("say", "echo {{inputs.parameters.m}}", "m"),
)


def waiting(runner, name):
    """A detached Workflow that waits for somebody's word."""
    runner.ffdl("run", write(runner, workflow(*ASKING, name=name)), "--detach")
    until(lambda: json.loads(runner.ffdl("status", name, "-o", "json").stdout)["reason"] == "waits at ask")


def test_a_suspended_node_waits_for_somebodys_word(runner):
    """Approvals: the command that lets it go on is where one looks, and the answer is handed on."""
    waiting(runner, "flow")
    assert "‖ ask" in (shown := runner.ffdl("show", "flow").stdout)
    assert "`ffdl resume flow --node ask --output answer=…`" in shown
    assert runner.fails("resume", "flow", "--node", "x") == "flow does not wait at x; it waits at ask"
    assert "not expecting output parameter 'b'" in runner.fails("resume", "flow", "--output", "b=1")
    runner.ffdl("resume", "flow", "--node", "ask", "--output", "answer=a=b")
    runner.ffdl("wait", "flow")
    events = [line.split()[2:5] for line in runner.ffdl("events", "flow").stdout.splitlines()]
    assert ["ask", "Normal", "SuspendSucceeded"] in events
    assert runner.ffdl("logs", "flow").stdout == "say | a=b\n"
    assert "nothing to resume" in runner.fails("resume", "flow", "--node", "ask")


def test_suspended_nodes_can_be_let_go_with_their_defaults_or_made_to_fail(runner):
    """Yes, and no."""
    waiting(runner, "yes")
    runner.ffdl("resume", "yes")
    runner.ffdl("wait", "yes")
    assert runner.ffdl("logs", "yes").stdout == "say | nothing\n"
    waiting(runner, "no")
    runner.ffdl("resume", "no", "--fail", "not on a Friday")
    assert "ask: not on a Friday" in runner.ffdl("wait", "no", code=1).stderr


def test_its_artifacts_can_be_fetched(runner):
    """What the steps put out for each other, for the user."""
    made = sh("make", "mkdir model; echo weights > model/w; echo note > note", outputs={
        "artifacts": [
            {"name": "model", "path": "/work/model"},
            {"name": "note", "path": "/work/note", "archive": {"none": {}}},
        ]
    })  # fmt: skip
    made["container"]["workingDir"] = "/work"
    runner.ffdl("run", write(runner, workflow(dag("main", make="make"), made)))
    place = runner.ffdl("download", "flow", "-d", "out").stdout.strip()
    assert place == "out/flow-artifacts"
    assert (runner.folder / place / "make" / "note").read_text() == "note\n"
    with tarfile.open(runner.folder / place / "make" / "model.tgz") as packed:
        assert "model/w" in packed.getnames()


def test_it_is_listed_as_what_it_is_and_can_be_run_again(runner):
    """No learners, no framework; `download` says what there is instead."""
    runner.ffdl("run", write(runner, workflow(sh("main", "echo hello"))))
    again = runner.ffdl("resubmit", "flow", "--wait").stdout.strip()
    assert again.startswith("flow-")
    rows = [line.split()[1:5] for line in runner.ffdl("list").stdout.splitlines()[1:]]
    assert rows == [[name, "Workflow", "COMPLETED", "100%"] for name in (again, "flow")]
    assert "Learners" not in runner.ffdl("show", again).stdout
    assert "`ffdl logs flow` prints what it wrote" in runner.fails("download", "flow")
    assert "no training job" in runner.fails("download", "flow", "--trainedmodel")
    runner.ffdl("delete", "flow", "--results")
    assert runner.ffdl("logs", again).stdout == f"{again} | hello\n"
