"""An Argo Workflow that is no training job, as a job of the local engine."""

import pytest

from ffdl.engines.base import Refused
from ffdl.engines.local.engine import LocalEngine


def workflow(command: str, **metadata: str) -> dict:
    template = {"name": "main", "container": {"image": "debian", "command": ["sh", "-c", command]}}
    spec = {"entrypoint": "main", "templates": [template]}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def ended(engine: LocalEngine, job_id: str):
    return list(engine.watch(job_id, 60))[-1]


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
    engine.submit_workflow(workflow("sleep 60", name="hello"))
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
