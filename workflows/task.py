"""A training job as one node of a user's own pipeline: a container of the steps image that submits it and waits.

The job has a Workflow of its own, because halt, exit handler and volumes belong to a whole Workflow.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, fields, replace
from typing import Any

from hera.workflows import Container, EmptyDirVolume, Env, Parameter, RawArtifact
from hera.workflows import models as m

from ..learner import contract
from .compile import STEPS_IMAGE, unprivileged
from .job import TrainingJob
from .site import OUR_USER, Site

TASK_ACCOUNT = "ffdl-task"
MOST = 512 * 1024  # bytes of code in a node: an object of Kubernetes has room for about 1.5 MB
LOST = f"lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [-1, 137, {contract.EXIT_AGAIN}]"


class TaskError(ValueError):
    """The job can't travel in a node of a pipeline. Its text is one line that says what to do instead."""


def template(job: TrainingJob, code: bytes | None, name: str, image: str = "") -> Container:
    """The node's template. `code` is a zip. Its output parameter `id` is the job's id, its exit code 0 or 1.

    `image` has the command `ffdl`; the default is that of a cluster without a registry.

    Argo rewrites `{{…}}` in all that a template says, so job and code travel in base64. Raises TaskError.
    """
    _check(job, code)
    site = Site()
    inputs = [_file("job", contract.TASK_JOB_FILE, dump(job).encode())]
    if code is not None:
        inputs.append(_file("code", contract.TASK_CODE_FILE, code))
    return Container(
        name=name,
        image=image or site.image(STEPS_IMAGE),
        image_pull_policy=site.pull_policy,
        command=["ffdl", "--engine", "argo", "task"],
        # the same in each attempt of the node, different in each run of the pipeline
        env=[
            Env(name=contract.TASK_NODE_ENV, value="{{workflow.uid}}/{{node.name}}"),
            Env(name=contract.TASK_WORKFLOW_ENV, value="{{workflow.name}}"),
            m.EnvVar(
                name="FFDL_NAMESPACE",
                value_from=m.EnvVarSource(field_ref=m.ObjectFieldSelector(field_path="metadata.namespace")),
            ),
        ],
        inputs=inputs,
        outputs=[Parameter(name="id", value_from=m.ValueFrom(path=contract.TASK_ID_FILE, default=""))],
        volumes=[EmptyDirVolume(name="task", mount_path=contract.RUN_DIR)],
        resources=m.ResourceRequirements(requests={"cpu": m.Quantity(root="10m"), "memory": m.Quantity(root="64Mi")}),
        security_context=unprivileged(read_only_root_filesystem=True),
        pod_security_context=m.PodSecurityContext(
            fs_group=OUR_USER, run_as_non_root=True, run_as_user=OUR_USER, run_as_group=OUR_USER
        ),
        service_account_name=TASK_ACCOUNT,
        automount_service_account_token=True,
        retry_strategy=m.RetryStrategy(
            retry_policy="Always",
            limit=m.IntOrString(root="1000000"),
            backoff=m.Backoff(duration="5s", factor=m.IntOrString(root=1)),
            expression=LOST,
        ),
    )


def _file(name: str, path: str, content: bytes) -> RawArtifact:
    return RawArtifact(name=name, path=path, data=base64.b64encode(content).decode())


def _check(job: TrainingJob, code: bytes | None) -> None:
    if job.secret_env:
        names = ", ".join(sorted(job.secret_env))
        raise TaskError(
            f"env of this job has values from your environment ({names}); use env_from_secret in a pipeline"
        )
    if job.credentials:
        raise TaskError("connection has credentials, which a pipeline would show; write secret: NAME in connection")
    if job.registry:
        raise TaskError("image_location has an access_token, which a pipeline would show; give the account the token")
    if code is not None and len(code) > MOST:
        raise TaskError(
            f"the code is {len(code) / 1024:.0f} KiB packed, a node of a pipeline holds {MOST // 1024}; "
            "put the large part into the image or the training data"
        )


def dump(job: TrainingJob) -> str:
    """Everything decided about `job`, as JSON; `load` reads it."""
    return json.dumps({**asdict(job), "spec": json.loads(job.spec.to_json()), "format": 1}, sort_keys=True)


def load(text: str) -> TrainingJob:
    """Raises ValueError for a format this version does not know."""
    values: dict[str, Any] = json.loads(text)
    if values.pop("format", None) != 1:
        raise ValueError("this job was written by another version of ffdl; make the pipeline again with this one")
    spec = contract.JobSpec.from_json(json.dumps(values.pop("spec")))
    known = {field.name for field in fields(TrainingJob)}
    job = TrainingJob(spec=spec, **{name: value for name, value in values.items() if name in known})
    return replace(
        job, env_from_secret=tuple(job.env_from_secret), tolerations=tuple(job.tolerations), notes=tuple(job.notes)
    )
