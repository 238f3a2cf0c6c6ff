"""An Argo Workflow that is no training job, as a job of the local engine."""

import json

import pytest

from ffdl.engines.base import Refused
from ffdl.engines.client import Client
from ffdl.engines.local.engine import LocalEngine
from ffdl.workflows.errors import ManifestError

PATIENCE = 240.0  # seconds


def workflow(command: str, **metadata: str) -> dict:
    template = {"name": "main", "container": {"image": "debian", "command": ["sh", "-c", command]}}
    spec = {"entrypoint": "main", "templates": [template]}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def ended(engine: LocalEngine, job_id: str):
    return list(engine.watch(job_id, PATIENCE))[-1]


def test_it_runs_to_its_end_under_the_name_it_has(engine):
    """The Workflow's name is the job's id: what Argo's users know it by."""
    job_id = engine.submit_workflow(workflow("echo hello", name="hello"))
    assert job_id == "hello"
    status = ended(engine, job_id)
    assert (status.kind, status.state, status.progress, status.learners) == ("Workflow", "COMPLETED", 1.0, 0)
    assert [line.text for line in engine.logs(job_id, step="main")] == ["hello"]
    with pytest.raises(Refused, match=r"hello is there already \(COMPLETED\); --replace runs it anew"):
        engine.submit_workflow(workflow("true", name="hello"))


def test_its_name_can_be_taken_over_once_it_has_ended(engine):
    """Who writes a Workflow runs the same file again and again; one that runs is never lost that way."""
    engine.submit_workflow(workflow("sleep 1000", name="hello"))
    with pytest.raises(Refused, match="not ended; `ffdl stop hello` ends it"):
        engine.submit_workflow(workflow("true", name="hello"), replace=True)
    engine.stop("hello")
    assert ended(engine, "hello").state == "FAILED"
    engine.submit_workflow(workflow("true", name="hello"), replace=True)
    assert ended(engine, "hello").state == "COMPLETED"


def test_a_name_is_made_of_generate_name(engine):
    """Files that can be submitted twice have no name."""
    first, second = (engine.submit_workflow(workflow("true", generateName="hello-")) for _ in range(2))
    assert first != second
    assert first.startswith("hello-")
    assert len(first) == len("hello-") + 5


@pytest.mark.parametrize("metadata", [{}, {"name": "../up"}, {"name": "Hello"}])
def test_a_workflow_without_a_usable_name_is_refused(engine, metadata):
    """The name becomes a folder's: no name may lead out of the engine's own."""
    with pytest.raises(Refused, match=r"metadata\.name"):
        engine.submit_workflow(workflow("true", **metadata))
    assert engine.ids() == []


def test_why_it_failed_is_the_pods_own_reason(engine):
    """`child 'a' failed` helps nobody."""
    status = ended(engine, engine.submit_workflow(workflow("exit 3", name="red")))
    assert (status.state, status.exit_code) == ("FAILED", 3)
    assert status.reason == "red: main: Error (exit code 3)"


def test_config_maps_and_secrets_come_with_it(engine):
    """They lie beside the Workflow in its file, as they would in a namespace."""
    made = workflow("cat /config/greeting; echo $PASSWORD", name="reads")
    secret = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
    made["spec"]["templates"][0]["container"] |= {
        "env": [secret],
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    made["spec"]["volumes"] = [{"name": "config", "configMap": {"name": "words"}}]
    objects = {"config_maps": {"words": {"greeting": b"hi\n"}}, "secrets": {"db": {"password": b"geheim"}}}
    job_id = engine.submit_workflow(made, **objects)
    assert ended(engine, job_id).state == "COMPLETED"
    assert [line.text for line in engine.logs(job_id, step="main")] == ["hi", "geheim"]


def asking(command: str, name: str, items: int, **requests: str) -> dict:
    """A loop whose pods ask for some of the machine."""
    made = workflow(command, name=name)
    made["spec"]["templates"][0]["container"]["resources"] = {"requests": requests}
    loop = {"name": "each", "template": "main", "withItems": list(range(items))}
    made["spec"]["templates"].append({"name": "loop", "dag": {"tasks": [loop]}})
    made["spec"]["entrypoint"] = "loop"
    return made


def test_pods_wait_until_there_is_room_for_each(engine, monkeypatch, tmp_path):
    """On a node of a cluster they would; all at once would slow each other down, or run out of memory."""
    monkeypatch.setenv("FFDL_MACHINE", "cpus=2,memory=8GiB")
    (tmp_path / "shared").mkdir()
    second = "until [ $(grep -c begins /shared/order) -ge 2 ]; do sleep 0.02; done"  # the first waits for it
    made = asking(f"cd /shared; echo begins >> order; {second}; sleep 0.2; echo ends >> order", "loop", 6, cpu="1")
    made["spec"]["volumes"] = [{"name": "shared", "hostPath": {"path": str(tmp_path / "shared")}}]
    made["spec"]["templates"][0]["container"]["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
    assert ended(engine, engine.submit_workflow(made)).state == "COMPLETED"
    running = most = 0
    for word in (tmp_path / "shared" / "order").read_text().split():
        running += 1 if word == "begins" else -1
        most = max(most, running)
    assert most == 2
    whole = engine.submit_workflow(asking("true", "whole", 1, cpu="2"))
    assert ended(engine, whole).state == "COMPLETED"


def test_a_pod_that_waits_says_for_what(engine, monkeypatch):
    """Nobody should have to guess."""
    monkeypatch.setenv("FFDL_MACHINE", "cpus=1,memory=8GiB")
    engine.submit_workflow(asking("sleep 1000", "first", 1, cpu="1"))
    for seen in engine.watch_workflow("first"):
        if any(node["phase"] == "Running" and node["type"] == "Pod" for node in nodes(seen)):
            break
    engine.submit_workflow(asking("true", "second", 1, cpu="1"))
    for seen in engine.watch_workflow("second"):
        if any(node.get("message") == "needs 1 CPUs, 0 free" for node in nodes(seen)):
            break
    engine.stop("first")
    assert ended(engine, "second").state == "COMPLETED"


def nodes(made: dict) -> list:
    return list((made["status"].get("nodes") or {}).values())


def test_python_runs_files_mappings_and_heras_workflows(engine, tmp_path):
    """Whoever makes Workflows in a notebook tries them there."""
    client = Client(engine)
    made = workflow("echo {{workflow.parameters.word}}", generateName="py-")
    made["spec"]["arguments"] = {"parameters": [{"name": "word"}]}
    file = tmp_path / "flow.yaml"
    file.write_text(json.dumps(made))

    class Made:
        def to_dict(self) -> dict:
            return made

    for source in (file, str(file), made, Made()):
        job = client.run(source, {"word": "hello"})
        assert job.wait(PATIENCE).state == "COMPLETED"
        assert [line.text for line in job.logs()] == ["hello"]
    with pytest.raises(Refused, match=r"^wrod: the Workflow has no such parameter; did you mean word"):
        client.run(made, {"wrod": "x"})
    file.write_text(json.dumps({**made, "spec": {**made["spec"], "entrypoint": "gone"}}, indent=1))
    with pytest.raises(ManifestError, match=r"flow.yaml:8: template name 'gone' undefined"):
        client.run(file, {"word": "x"})
