"""Training jobs as nodes of a user's own pipeline."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from hera.workflows import DAG, Workflow

from ffdl import TrainingJob, pack
from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.kubernetes_api import Object

PIPELINE = Path(__file__).parents[3] / "examples" / "pipeline" / "pipeline.py"
CRON = "apis/argoproj.io/v1alpha1/namespaces/{}/cronworkflows"
OF_CRON = "workflows.argoproj.io/cron-workflow=nightly-digits"


def small(command: str) -> TrainingJob:
    framework = {"name": "custom", "version": ClusterUser.image, "command": command}
    return TrainingJob.from_arguments(name="in-a-pipeline", cpus=0.1, memory="128MB", framework=framework)


def run(user: ClusterUser, name: str, job: TrainingJob, code: bytes | None = None) -> None:
    with Workflow(name=name, entrypoint="main", service_account_name="ffdl-task") as workflow, DAG(name="main"):
        job.task(code, name="train")
    user.api.create("workflows", {**workflow.to_dict(), "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"})


def phase(user: ClusterUser, name: str) -> str:
    return str((user.api.get("workflows", name).get("status") or {}).get("phase"))


def jobs(user: ClusterUser) -> list[str]:
    found = [status.id for status in user.engine.list()]
    user.jobs.update(found)
    return found


def finished(user: ClusterUser, selector: str) -> list[Object]:
    found = user.api.list("workflows", selector)
    return [each for each in found if (each.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Error")]


def remove(user: ClusterUser, *names: str) -> None:
    for name in names:
        user.api.delete("workflows", name)


def test_the_example_runs_twice_from_one_cron_workflow(user: ClusterUser) -> None:
    """Each night's run is a job of its own, and the next node knows which."""
    pipeline: dict[str, Any] = runpy.run_path(str(PIPELINE))["pipeline"].to_dict()
    pipeline["spec"]["schedules"] = ["* * * * *"]
    user.api.call("POST", CRON.format(user.tenant.namespace), pipeline)
    try:
        user.wait_for(lambda: len(finished(user, OF_CRON)) >= 2, "the second run of the pipeline", timeout=600)
    finally:
        user.api.call("DELETE", f"{CRON.format(user.tenant.namespace)}/nightly-digits")
    runs = finished(user, OF_CRON)
    assert [each["status"]["phase"] for each in runs] == ["Succeeded"] * len(runs), json.dumps(runs)
    trained = [node for each in runs for node in each["status"]["nodes"].values() if node["displayName"] == "train"]
    ids = {parameter["value"] for node in trained for parameter in node["outputs"]["parameters"]}
    assert len(ids) == len(runs)
    assert ids <= set(jobs(user))
    for job in ids:
        assert user.engine.status(job).state == "COMPLETED"


@pytest.mark.parametrize("grace", [None, 0], ids=["gracefully", "by-force"])
def test_a_node_whose_pod_is_lost_finds_its_job_again(user: ClusterUser, grace: int | None) -> None:
    """A drained node of the cluster must neither end a pipeline's job nor make it train twice."""
    code = user.folder / "code"
    code.mkdir()
    (code / "said.txt").write_text("from the code\n")
    run(user, "lost", small("cat said.txt; sleep 20"), pack(code))
    user.wait_for(lambda: bool(jobs(user)), "the pipeline's job", timeout=60)
    (job,) = jobs(user)
    user.until(job, lambda status: status.state == "PROCESSING")
    (pod,) = (p for p in user.api.list("pods", "workflows.argoproj.io/workflow=lost"))
    user.api.delete("pods", pod["metadata"]["name"], grace=grace)
    user.wait_for(lambda: phase(user, "lost") in ("Succeeded", "Failed", "Error"), "the pipeline's end", timeout=120)
    assert phase(user, "lost") == "Succeeded"
    assert jobs(user) == [job]
    assert "from the code" in user.ffdl("logs", job).stdout
    remove(user, "lost")


@pytest.mark.parametrize("end", ["Stop", "Terminate", "delete"])
def test_ending_the_pipeline_stops_its_job_and_suspending_it_does_not(user: ClusterUser, end: str) -> None:
    """What runs on GPUs after its pipeline was stopped is paid for and of no use."""
    run(user, "stopped", small("sleep 1000"))
    user.wait_for(lambda: bool(jobs(user)), "the pipeline's job", timeout=60)
    (job,) = jobs(user)
    user.until(job, lambda status: status.state == "PROCESSING")
    user.api.patch("workflows", "stopped", {"spec": {"suspend": True}})
    assert user.engine.status(job).state == "PROCESSING"
    if end == "delete":
        remove(user, "stopped")
    else:
        user.api.patch("workflows", "stopped", {"spec": {"suspend": None, "shutdown": end}})
    assert user.until_over(job).state == "FAILED"
    if end != "delete":
        remove(user, "stopped")


def test_a_failed_job_is_a_failed_node(user: ClusterUser) -> None:
    """What comes after it in the pipeline must not run on a model that is not there."""
    run(user, "failed", small("exit 3"))
    user.wait_for(lambda: phase(user, "failed") in ("Succeeded", "Failed", "Error"), "the pipeline's end", timeout=120)
    assert phase(user, "failed") == "Failed"
    (job,) = jobs(user)
    assert user.engine.status(job).exit_code == 3
    remove(user, "failed")
