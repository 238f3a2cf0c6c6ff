"""A training job as one node of a user's own pipeline."""

from __future__ import annotations

import base64
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hera.workflows import DAG, Steps, Workflow

from ffdl.cli.task import job_id_of
from ffdl.workflows.job import TrainingJob
from ffdl.workflows.task import MOST, TaskError, load

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
FRAMEWORK = {"name": "numpy", "version": "2", "command": "echo {{workflow.name}} $$ $(HOME) 'a\"b'"}


def job(environ: dict[str, str] | None = None, **keys: Any) -> TrainingJob:
    return TrainingJob.from_arguments(environ=environ, **{"name": "j {{x}}", "framework": FRAMEWORK, **keys})


def pipeline(wanted: TrainingJob, code: bytes | None = None) -> dict[str, Any]:
    with Workflow(name="outer", entrypoint="main") as workflow, DAG(name="main"):
        wanted.task(code, name="fit")
    result: dict[str, Any] = workflow.to_dict()
    return result


def node(workflow: dict[str, Any]) -> dict[str, Any]:
    return next(t for t in workflow["spec"]["templates"] if t["name"] == "fit")


def test_the_job_in_the_node_is_the_job() -> None:
    """Nothing that was decided gets lost on the way, and nothing that Argo would rewrite is in sight."""
    wanted = job(learners=3, env={"A": "{{b}}"}, retry={"attempts": 2}, placement={"node_selector": {"a": "b"}})
    template = node(pipeline(wanted, b"code"))
    data = {each["name"]: each["raw"]["data"] for each in template["inputs"]["artifacts"]}
    assert load(base64.b64decode(data["job"]).decode()) == wanted
    assert base64.b64decode(data["code"]) == b"code"
    assert "{{x}}" not in str(template)
    assert "{{b}}" not in str(template)


def test_it_can_be_a_step_too() -> None:
    """Hera's users build with Steps as often as with DAGs."""
    with Workflow(name="outer", entrypoint="main") as workflow, Steps(name="main"):
        job().task(name="fit")
    templates = {t["name"]: t for t in workflow.to_dict()["spec"]["templates"]}
    assert templates["main"]["steps"][0][0]["template"] == "fit"


SECRET = {"connection": {"auth_url": "http://s3", "user_name": "u", "password": "hush-hush"}}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"env": {"TOKEN": "${TOKEN}"}}, "use env_from_secret"),
        (
            {
                "data_stores": [
                    {"id": "s", "type": "mount_cos", "training_data": {"container": "d"}, **SECRET},
                ]
            },
            "write secret: NAME",
        ),
    ],
)
def test_a_secret_does_not_travel_in_a_pipeline(keys: dict[str, Any], said: str) -> None:
    """Everyone who may read Workflows would read it."""
    with pytest.raises(TaskError, match=said):
        pipeline(job(environ={"TOKEN": "hush-hush"}, **keys))


def test_code_that_is_too_large_is_refused_with_its_size() -> None:
    """Kubernetes would refuse the object with a sentence about etcd."""
    with pytest.raises(TaskError, match="the code is 513 KiB packed, a node of a pipeline holds 512"):
        pipeline(job(), b"x" * (MOST + 1024))


def test_each_run_is_a_job_of_its_own_and_each_attempt_finds_it_again() -> None:
    """A node whose pod was lost goes on with the job that it began; the pipeline's next run begins another."""
    first = job_id_of("3c0e-1/nightly-1.train(0)")
    assert first == job_id_of("3c0e-1/nightly-1.train(1)") == job_id_of("3c0e-1/nightly-1.train")
    assert first != job_id_of("77aa-2/nightly-2.train(0)")
    assert job_id_of("3c0e-1/nightly-1.train(0:a)(0)") != job_id_of("3c0e-1/nightly-1.train(1:b)(0)")


def test_the_example_is_what_it_makes() -> None:
    """A reader sees in the diff what a change does to a pipeline. FFDL_REGENERATE=1 writes the file anew."""
    made = runpy.run_path(str(EXAMPLE / "pipeline.py"))["pipeline"].to_yaml()
    if os.environ.get("FFDL_REGENERATE"):
        (EXAMPLE / "pipeline.yaml").write_text(made + "\n")
    assert yaml.safe_load(made) == yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())
