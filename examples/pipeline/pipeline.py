"""Reads handwritten digits every night, as a node of a pipeline: `python pipeline.py | kubectl apply -f -`.

FFDL_STEPS_IMAGE says where the cluster has the image of the steps: `ffdl doctor` prints registry and tag.
"""

import os
from pathlib import Path

from hera.workflows import DAG, Container, CronWorkflow, Parameter, Task

import ffdl

STEPS = os.environ.get("FFDL_STEPS_IMAGE", "localhost/ffdl-steps:0.1.0")
DIGITS = Path(__file__).parent.parent / "digits"

job = ffdl.TrainingJob.from_manifest((DIGITS / "manifest.yml").read_text())

with CronWorkflow(
    name="nightly-digits",
    schedules=["0 3 * * *"],
    entrypoint="pipeline",
    service_account_name="ffdl-task",
    concurrency_policy="Forbid",
) as pipeline:
    report = Container(
        name="report",
        image=STEPS,
        inputs=[Parameter(name="job")],
        command=["ffdl", "--engine", "argo", "show", "{{inputs.parameters.job}}"],
    )
    with DAG(name="pipeline"):
        train = job.task(ffdl.pack(DIGITS), image=STEPS)
        Task(name="report", template=report, depends="train", arguments={"job": train.get_parameter("id")})

if __name__ == "__main__":
    print(pipeline.to_yaml())
