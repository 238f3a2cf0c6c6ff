"""What is in the pods of any Argo Workflow on this machine: scripts, files from step to step, Secrets, sidecars."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ffdl.engines.base import EngineError, Refused
from ffdl.engines.local import sandbox
from ffdl.engines.local.engine import LocalEngine

Template = dict[str, Any]


def shell(command: str, name: str = "main", **more: Any) -> Template:
    """A template that runs `command`; `more` of the container, or of the template if it has a field of that name."""
    of_template = ("inputs", "outputs", "volumes", "sidecars", "initContainers", "retryStrategy", "metadata")
    own = {key: more.pop(key) for key in of_template if key in more}
    return {"name": name, "container": {"image": "debian", "command": ["sh", "-c", command], **more}, **own}


def steps(*groups: list[Template] | Template) -> Template:
    return {"name": "main", "steps": [group if isinstance(group, list) else [group] for group in groups]}


def step(name: str, template: str = "", **arguments: Any) -> Template:
    return {"name": name, "template": template or name, "arguments": arguments}


class Run:
    """A Workflow that has ended."""

    def __init__(self, engine: LocalEngine, *templates: Template, objects: Any = None, **spec: Any) -> None:
        workflow = self.workflow(*templates, **spec)
        self.engine, self.id = engine, engine.submit_workflow(workflow, **(objects or {}))
        list(engine.watch(self.id, 240))
        self.status = engine.workflow(self.id)["status"]
        self.phase = self.status["phase"]

    @staticmethod
    def workflow(*templates: Template, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"generateName": "pods-"},
            "spec": {"entrypoint": "main", "templates": list(templates), **spec},
        }

    def node(self, name: str) -> dict[str, Any]:
        """The node displayed as `name`; the Workflow's own for ''."""
        return next(n for n in self.status["nodes"].values() if n["displayName"] == (name or self.id))

    def said(self, step: str = "main") -> list[str]:
        return [line.text for line in self.engine.logs(self.id, step=step)]


@pytest.fixture
def namespaces() -> None:
    if sandbox.available() != sandbox.NAMESPACES:
        pytest.skip("this kernel gives no namespaces here")


def test_a_script_and_its_result(engine: LocalEngine) -> None:
    """The most usual of Argo's templates: source in the Workflow, its output in the next step's arguments."""
    source = "import sys\nprint('a \"quoted\"', end='')\nprint(' line')\nprint('noise', file=sys.stderr)\n"
    script = {"name": "make", "script": {"image": "python", "command": [sys.executable], "source": source}}
    use = shell("echo '{{inputs.parameters.it}}'", "use", inputs={"parameters": [{"name": "it"}]})
    given = {"parameters": [{"name": "it", "value": "{{steps.make.outputs.result}}"}]}
    run = Run(engine, steps(step("make"), step("use", **given)), script, use)
    assert run.phase == "Succeeded"
    assert run.node("make")["outputs"] == {"exitCode": "0", "result": 'a "quoted" line'}
    assert run.said("use") == ['a "quoted" line']


def test_a_script_that_fails(engine: LocalEngine) -> None:
    """Its exit code is the node's, as a container's is."""
    script = {"name": "main", "script": {"image": "bash", "command": ["sh"], "source": "exit 7"}}
    run = Run(engine, script)
    assert (run.phase, run.status["message"]) == ("Failed", "main: Error (exit code 7)")
    assert run.node("")["outputs"] == {"exitCode": "7"}


@pytest.mark.usefixtures("namespaces")
def test_files_go_from_step_to_step(engine: LocalEngine) -> None:
    """A file and a folder, made below /tmp by two steps at once, each with a /tmp of its own."""
    made = {"artifacts": [{"name": "d", "path": "/tmp/made"}, {"name": "f", "path": "/f.txt", "archive": {"none": {}}}]}
    make = shell(
        "mkdir -p /tmp/made/in; echo {{inputs.parameters.n}} > /tmp/made/in/x; touch /tmp/made/y; echo f > /f.txt",
        "make", inputs={"parameters": [{"name": "n"}]}, outputs=made,
    )  # fmt: skip
    inputs = {
        "artifacts": [
            {"name": name, "path": f"/tmp/deep/{name}", **({"mode": 0o400} if name == "text" else {})}
            for name in ("one", "two", "file", "text")
        ]
    }
    use = shell("cd /tmp/deep; cat one/in/x two/in/x file text; stat -c %a text; ls /tmp", "use", inputs=inputs)
    given = [
        {"name": "one", "from": "{{steps.one.outputs.artifacts.d}}"},
        {"name": "two", "from": "{{steps.two.outputs.artifacts.d}}"},
        {"name": "file", "from": "{{steps.two.outputs.artifacts.f}}"},
        {"name": "text", "raw": {"data": "raw\n"}},
    ]
    both = [step(name, "make", parameters=[{"name": "n", "value": name}]) for name in ("one", "two")]
    run = Run(engine, steps(both, step("use", artifacts=given)), make, use)
    assert run.phase == "Succeeded", run.status
    assert run.said("use") == ["one", "two", "f", "raw", "400", "deep"]
    pod = f"{run.id}-make-{run.node('one')['id'].rpartition('-')[2]}"
    keys = [artifact["s3"]["key"] for artifact in run.node("one")["outputs"]["artifacts"]]
    assert keys == [f"{run.id}/{pod}/d.tgz", f"{run.id}/{pod}/f.txt"]
    assert not Path("/tmp/made").exists()
    assert not Path("/f.txt").exists()


@pytest.mark.usefixtures("namespaces")
def test_an_output_that_was_not_written(engine: LocalEngine) -> None:
    """In Argo's words; the exit code says that the command itself went well."""
    outputs = {"parameters": [{"name": "p", "valueFrom": {"path": "/tmp/p"}}]}
    run = Run(engine, shell("true", outputs=outputs))
    said = "wait: Error (exit code 64): open /var/run/argo/outputs/parameters/tmp/p: no such file or directory"
    assert (run.phase, run.status["message"]) == ("Error", said)
    assert run.node("")["outputs"]["exitCode"] == "0"


def test_a_container_set(engine: LocalEngine) -> None:
    """Several commands in one pod, on one folder, in the order of their dependencies, each with a node."""
    mount = [{"name": "work", "mountPath": "/work"}]
    root = "cd ${FFDL_ROOT:-}/work; "
    containers = [
        {"name": "main", "image": "x", "command": ["sh", "-c", f"{root} cat a b > c"], "dependencies": ["b"]},
        {"name": "b", "image": "x", "command": ["sh", "-c", f"{root} cp a b"], "dependencies": ["a"]},
        {"name": "a", "image": "x", "command": ["sh", "-c", f"{root} echo a > a"]},
    ]
    template = {
        "name": "main",
        "containerSet": {"volumeMounts": mount, "containers": containers},
        "volumes": [{"name": "work", "emptyDir": {}}],
        "outputs": {"parameters": [{"name": "c", "valueFrom": {"path": "/work/c"}}]},
    }
    run = Run(engine, template)
    assert run.phase == "Succeeded", run.status
    assert run.node("")["outputs"]["parameters"][0]["value"] == "a\na"
    assert {n["displayName"] for n in run.status["nodes"].values() if n["type"] == "Container"} == {"a", "b", "main"}


def test_a_sidecar_and_an_init_container(engine: LocalEngine) -> None:
    """The one prepares, the other serves for as long as main runs."""
    mounts = [{"name": "s", "mountPath": "/s"}]
    root = "cd ${FFDL_ROOT:-}/s; "
    serve = root + "trap 'exit 0' TERM; cp prepared up; while :; do sleep 0.02; done"
    template = shell(
        root + "until [ -s up ]; do sleep 0.02; done; cat up",
        volumeMounts=mounts,
        volumes=[{"name": "s", "emptyDir": {}}],
        initContainers=[
            {"name": "p", "image": "x", "command": ["sh", "-c", root + "echo ok > prepared"], "volumeMounts": mounts}
        ],
        sidecars=[{"name": "server", "image": "x", "command": ["sh", "-c", serve], "mirrorVolumeMounts": True}],
    )
    run = Run(engine, template)
    assert (run.phase, run.said()) == ("Succeeded", ["ok"])


def test_secrets_and_config_maps(engine: LocalEngine, tmp_path: Path) -> None:
    """Handed in with the Workflow, or lying in the home: as variables, all or one, and as files, all or some."""
    for kind in ("configmaps", "secrets"):
        (tmp_path / "home" / kind / "lying").mkdir(parents=True)
        (tmp_path / "home" / kind / "lying" / "OWN").write_text(kind)
    objects = {"config_maps": {"given": {"A": b"1", "b.txt": b"two"}}, "secrets": {"given": {"TOKEN": b"t0p"}}}
    env = [
        {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "given", "key": "A"}}},
        {"name": "TWO", "valueFrom": {"secretKeyRef": {"name": "lying", "key": "OWN"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "no", "key": "x", "optional": True}}},
        {"name": "BOTH", "value": "$(ONE)-$(P_TOKEN)"},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
    ]
    env_from = [{"prefix": "P_", "secretRef": {"name": "given"}}, {"configMapRef": {"name": "lying"}}]
    volumes = [
        {"name": "c", "configMap": {"name": "given", "items": [{"key": "b.txt", "path": "renamed"}]}},
        {"name": "s", "secret": {"secretName": "given"}},
    ]
    command = (
        'echo "$ONE $TWO ${NONE-unset} $BOTH $P_TOKEN $OWN $CPU $LABEL"; cd ${FFDL_ROOT:-}/; '
        "ls c; cat c/renamed s/TOKEN"
    )
    template = shell(
        command, env=env, envFrom=env_from, resources={"limits": {"cpu": "500m"}}, volumes=volumes,
        volumeMounts=[{"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s"}],
        metadata={"labels": {"app": "demo"}},
    )  # fmt: skip
    run = Run(engine, template, objects=objects)
    assert run.phase == "Succeeded", run.status
    assert run.said() == ["1 secrets unset 1-t0p t0p configmaps 500 demo", "renamed", "twot0p"]


@pytest.mark.usefixtures("namespaces")
def test_a_container_has_folders_of_its_own(engine: LocalEngine) -> None:
    """What an image would give it: /tmp, its working folder, the root. Nothing of it is this machine's."""
    template = shell("pwd; touch /mine here /tmp/mine && ls /tmp; hostname", workingDir="/opt/app/of-an-image")
    run = Run(engine, template)
    assert (run.phase, run.said()) == ("Succeeded", ["/opt/app/of-an-image", "mine", run.id])
    assert not Path("/opt/app/of-an-image").exists()
    assert not Path("/mine").exists()


def test_out_of_memory_is_said_of_the_container(engine: LocalEngine) -> None:
    """Kubernetes' own word, which users' retry expressions look for."""
    hog = "import time; x = bytearray(300 << 20); time.sleep(60)"
    container = {
        "image": "x", "command": [sys.executable, "-S", "-c", hog], "resources": {"limits": {"memory": "64Mi"}},
    }  # fmt: skip
    run = Run(engine, {"name": "main", "container": container})
    assert (run.phase, run.status["message"]) == ("Failed", "main: OOMKilled (exit code 137)")


@pytest.mark.parametrize(
    ("container", "said"),
    [
        (
            {"image": "docker/whalesay:latest", "command": ["cowsay-of-the-image"]},
            "templates.main: cowsay-of-the-image is not on this machine, and nothing is pulled: "
            "of docker/whalesay:latest only the name is known",
        ),
        (
            {"image": "docker/whalesay:latest", "args": ["hello"]},
            "templates.main.container.command may not be empty: the command of docker/whalesay:latest is not known "
            "here, nothing is pulled",
        ),
    ],
)
def test_what_an_image_would_bring_is_named_at_once(engine: LocalEngine, container: Template, said: str) -> None:
    """Nothing is pulled: a user learns it before anything has run, with the name of what is missing."""
    with pytest.raises(Refused) as refused:
        Run(engine, {"name": "main", "container": container})
    assert said in str(refused.value)
    assert engine.ids() == []


def test_what_a_step_brings_along_is_not_missed(engine: LocalEngine) -> None:
    """A program in a volume or an artifact, or one of a template that nothing calls."""
    mounts = [{"name": "v", "mountPath": "/v"}]
    bring = {
        "name": "p",
        "image": "x",
        "command": ["sh", "-c", "cp /bin/echo ${FFDL_ROOT:-}/v/"],
        "volumeMounts": mounts,
    }
    container = {"image": "x", "command": ["/v/echo", "hello"], "volumeMounts": mounts}
    main = {
        "name": "main",
        "container": container,
        "initContainers": [bring],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    unused = {"name": "unused", "container": {"image": "x", "command": ["no-such-program"]}}
    run = Run(engine, main, unused)
    assert (run.phase, run.said()) == ("Succeeded", ["hello"])


SERVER = """
import http.server, socket, sys, time
time.sleep(0.3)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(b"served")
    def log_message(self, *said):
        print(self.path, flush=True)
server = http.server.HTTPServer((sys.argv[1], 0 if len(sys.argv) < 3 else int(sys.argv[2])), Answer)
open("up", "w").write(str(server.server_port))
server.serve_forever()
"""


@pytest.fixture
def port() -> Iterator[int]:
    """Given to nobody else for as long as the test runs: it is held, but not listened at, so that a server can be."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("0.0.0.0", 0))
        yield int(held.getsockname()[1])


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket", "exec"])
def test_a_daemon_serves_once_it_answers(engine: LocalEngine, port: int, kind: str) -> None:
    """What comes after a server starts when its probe has succeeded, finds it at its address, and ends it."""
    probe: Template = {
        "httpGet": {"httpGet": {"path": "/ready", "port": "web"}},
        "tcpSocket": {"tcpSocket": {"port": port}},
        "exec": {"exec": {"command": ["sh", "-c", f"[ -s ${{FFDL_ROOT:-}}/ffdl/run/up ] # {port}"]}},
    }[kind]
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import os; os.chdir(os.environ.get('FFDL_ROOT','') + '/ffdl/run')\n{SERVER}",
    ]
    server = {
        "name": "server",
        "daemon": True,
        "container": {
            "image": "x", "command": command, "args": ["0.0.0.0", str(port)],
            "ports": [{"name": "web", "containerPort": port}], "readinessProbe": {**probe, "periodSeconds": 1},
        },
    }  # fmt: skip
    fetch = f"import urllib.request as r; print(r.urlopen('http://{{{{inputs.parameters.ip}}}}:{port}/ready').read().decode())"
    client = {
        "name": "client",
        "inputs": {"parameters": [{"name": "ip"}]},
        "container": {"image": "x", "command": [sys.executable, "-c", fetch]},
    }
    given = {"parameters": [{"name": "ip", "value": "{{steps.server.ip}}"}]}
    run = Run(engine, steps(step("server"), step("client", **given)), server, client)
    assert run.phase == "Succeeded", run.status
    assert run.said("client") == ["served"]
    assert run.node("server")["phase"] == "Succeeded"
    assert run.node("server")["podIP"].startswith("127.")


def test_without_namespaces_nothing_can_be_mounted(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that doesn't find its volume would fail with `No such file`: it is said before anything runs, with why."""
    monkeypatch.delenv(sandbox.SWITCH_ENV, raising=False)
    monkeypatch.setattr(sandbox, "available", lambda: sandbox.NONE)
    mounts = [{"name": "v", "mountPath": "/work/v"}]
    with pytest.raises(Refused, match=r"templates.main: nothing can be mounted at /work/v here: .*`ffdl doctor`"):
        Run(engine, shell("true", volumeMounts=mounts, volumes=[{"name": "v", "emptyDir": {}}]))
    decided = Run(engine, shell("readlink /proc/self/ns/pid"))  # by who submits, not by each that runs it
    assert decided.said("main") == [os.readlink("/proc/self/ns/pid")]


def test_a_wrong_kind_of_isolation_is_said_at_submission(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error is the submitter's to mend, before there is a job."""
    monkeypatch.setenv(sandbox.SWITCH_ENV, "namespace")
    with pytest.raises(Refused, match=f"{sandbox.SWITCH_ENV} is 'namespace'; it may be auto"):
        Run(engine, shell("true"))
    assert not list(engine.list())


def test_isolation_that_cannot_be_tried_now_is_said_at_submission(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without room for a process is no machine without namespaces; there is no job then."""

    def full() -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.delenv(sandbox.SWITCH_ENV, raising=False)
    monkeypatch.setattr(sandbox, "_tried", sandbox._tried.__wrapped__)
    monkeypatch.setattr(sandbox, "separate", full)
    with pytest.raises(EngineError, match=f"could not be tried: .*; end something, or say it by {sandbox.SWITCH_ENV}"):
        Run(engine, shell("true"))
    assert not list(engine.list())


def test_a_halt_that_was_taken_back_ends_with_a_line(engine: LocalEngine) -> None:
    """Who waits for the halt would wait until the pod ends by itself."""
    job_id = engine.submit_workflow(Run.workflow(shell("sleep 600")))
    next(seen for seen in engine.watch(job_id) if seen.state == "PROCESSING")
    with ThreadPoolExecutor(1) as aside:
        halting = aside.submit(engine.halt, job_id, timeout=30)
        next(seen for seen in engine.watch_workflow(job_id) if seen["spec"].get("suspend"))
        engine.resume(job_id)
        with pytest.raises(EngineError, match="was resumed meanwhile: it is not halted"):
            halting.result(60)
    engine.delete(job_id)


def test_what_asks_for_more_than_there_is_waits_and_says_so(engine: LocalEngine) -> None:
    """As on a cluster: Pending with the reason, the others go on, and Stop ends it."""
    huge = shell("true", "huge", resources={"requests": {"memory": "100Ti"}})
    main = {"name": "main", "dag": {"tasks": [step("huge"), step("small")]}}
    workflow = Run.workflow(main, huge, shell("true", "small"))
    job_id = engine.submit_workflow(workflow)
    for seen in engine.watch_workflow(job_id):
        nodes = {node["displayName"]: node for node in (seen["status"].get("nodes") or {}).values()}
        if nodes.get("small", {}).get("phase") == "Succeeded" and nodes["huge"].get("message"):
            assert nodes["huge"]["phase"] == "Pending"
            assert "needs 102400.0 GiB of memory" in nodes["huge"]["message"]
            engine.stop(job_id)
            break
    assert list(engine.watch(job_id, 240))[-1].state == "FAILED"
