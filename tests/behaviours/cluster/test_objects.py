"""What the API server and the cluster as a whole make of our objects."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ffdl import TrainingJob
from ffdl.workflows.compile import compile_job
from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.kubernetes_api import Api, Object
from tests.behaviours.user import FFDL

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = sorted(FOLDER.glob("*/workflow*.yaml"))
PIPELINE = FOLDER / "pipeline" / "pipeline.yaml"


def accepted(user: ClusterUser, workflow: Object) -> None:
    """Submitted by a user, every field checked against Argo's full definitions, and not kept."""
    mine = Api(user.tenant.kubeconfig, user.tenant.namespace)
    mine.create("workflows", workflow, dryRun="All", fieldValidation="Strict")


@pytest.mark.smoke
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_the_compiled_examples_are_valid(user: ClusterUser, file: Path) -> None:
    """`kubectl create -f workflow.yaml` is a promise of the README's."""
    for workflow in yaml.safe_load_all(file.read_text()):
        accepted(user, workflow)


@pytest.mark.smoke
def test_the_example_of_a_pipeline_is_valid(user: ClusterUser) -> None:
    """`kubectl apply -f pipeline.yaml` is an administrator's command: a tenant's users may not make CronWorkflows."""
    (pipeline,) = yaml.safe_load_all(PIPELINE.read_text())
    user.api.create("cronworkflows", pipeline, dryRun="All", fieldValidation="Strict")


def test_a_thousand_learners_are_accepted(user: ClusterUser) -> None:
    """An object has a size that it may not pass."""
    framework = {"name": "numpy", "version": "2", "command": "true"}
    job = TrainingJob.from_arguments(name="many", cpus=0.1, memory="100MB", learners=1000, framework=framework)
    accepted(user, compile_job(job, job_id="training-aaaaaaaaaa").workflow)


def test_a_submission_killed_midway_is_a_job_or_can_be_deleted(user: ClusterUser, dice: object) -> None:
    """A terminal closes at the worst moment: there is a job that runs, or one that was never begun, and no debris."""
    folder = user.command("true", cpus=0.1)
    began = time.monotonic()
    user.train(folder)
    took = time.monotonic() - began
    for _ in range(6):
        command = [str(FFDL), "train", str(folder / "manifest.yml")]
        process = subprocess.Popen(command, env=user.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(dice.uniform(took / 2, took))  # type: ignore[attr-defined]
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    states = {}
    for job in user.engine.ids():
        user.until(job, lambda status: status.terminal or status.state == "NOT_STARTED", 120)
        states[job] = user.engine.status(job).state
    print(states)
    assert set(states.values()) <= {"COMPLETED", "NOT_STARTED"}
    assert user.running() == []


@pytest.mark.timeout(3600)
def test_fifty_jobs_at_once(user: ClusterUser) -> None:
    """Eight GPUs, fifty jobs of one each: nobody is forgotten."""
    folder = user.command('echo "$TRAINING_ID" > "$RESULT_DIR/id"', cpus=0.05, memory="64MiB", gpus=1)
    jobs = [user.train(folder) for _ in range(50)]
    began = time.monotonic()
    states: Counter[str] = Counter()
    while states["COMPLETED"] < len(jobs):
        states = Counter(row["state"] for row in json.loads(user.ffdl("list", "-o", "json").stdout))
        assert not states["FAILED"], user.ffdl("list").stdout
        assert time.monotonic() - began < 3000, f"{states}\n{user.ffdl('list').stdout}"
        time.sleep(5)
    print(f"fifty jobs in {time.monotonic() - began:.0f} s")
    for job in jobs[:3]:
        assert (user.results(job) / "id").read_text() == f"{job}\n"


@pytest.mark.timeout(3600)
def test_the_status_of_many_learners_after_many_halts(user: ClusterUser) -> None:
    """Pods that wait for a node go with each halt and come with each resume: what is shown stays right, and short."""
    learners, halts = 200, int(os.environ.get("FFDL_TEST_HALTS", "8"))  # 20 take half an hour
    nowhere = {"node_selector": {"ffdl.org/nowhere": "here"}}
    job = user.train(user.command("true", cpus=0.01, memory="16MiB", learners=learners, placement=nowhere))
    began = time.monotonic()
    for _ in range(halts):
        user.wait_for(lambda: len(user.alive(job, "learner")) == learners, "all learners' pods", 300)
        user.ffdl("halt", job)
        # a controller that is going through 200 learners may make a pod after that: whoever looks next deletes it
        user.wait_for(lambda: user.ffdl("status", job).stdout.strip() == "HALTED", "nothing but a halted job")
        user.wait_for(lambda: not user.alive(job, "learner"), "no learner's pod")
        user.ffdl("resume", job)
    user.wait_for(lambda: len(user.alive(job, "learner")) == learners, "all learners' pods", 300)
    user.until(job, lambda status: status.state == "PENDING" and bool(status.reason))
    workflow = user.api.get("workflows", job)
    packed, size = "compressedNodes" in workflow["status"], len(json.dumps(workflow)) / 1e6
    print(f"{learners} learners, {halts} halts: {size:.2f} MB, packed: {packed}, {time.monotonic() - began:.0f} s")
    shown = json.loads(user.ffdl("show", job, "-o", "json").stdout)
    assert len([node for node in shown["nodes"] if node["name"].startswith("learner-")]) == learners
    assert "more learners; -o json shows all" in user.ffdl("show", job).stdout
    (row,) = json.loads(user.ffdl("list", "-o", "json").stdout)
    assert row["state"] == "PENDING"
    assert "node" in row["reason"]
