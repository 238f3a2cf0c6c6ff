"""What a job compiles into."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.learner.contract import JobSpec
from ffdl.workflows.compile import Compiled, compile_job
from ffdl.workflows.errors import ManifestError
from ffdl.workflows.job import Machine, TrainingJob

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.yml"))
FRAMEWORK = {"name": "numpy", "version": "2", "command": "python train.py"}


def compiled(environ: dict[str, str] | None = None, **keys: Any) -> Compiled:
    return compile_job(TrainingJob.from_arguments(environ=environ, **{"name": "j", "framework": FRAMEWORK, **keys}))


def template(result: Compiled, name: str) -> dict[str, Any]:
    return next(t for t in result.workflow["spec"]["templates"] if t["name"] == name)


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_example_compiles_into_the_workflow_beside_it(manifest: Path) -> None:
    """A reader sees in the diff what a change does to a user's Workflow. FFDL_REGENERATE=1 writes the files anew."""
    beside = manifest.with_name("workflow.yaml" if manifest.stem == "manifest" else f"workflow-{manifest.stem}.yaml")
    result = compile_job(TrainingJob.from_manifest(manifest.read_bytes()))
    if os.environ.get("FFDL_REGENERATE"):
        beside.write_text(result.to_yaml())
    kept = yaml.safe_load(beside.read_text())
    for workflow in (kept, result.workflow):
        workflow["spec"]["templates"].sort(key=lambda t: t["name"])
    assert result.workflow == kept


def test_the_same_job_gives_the_same_bytes() -> None:
    """A compiled Workflow can be reviewed, cached and compared."""
    assert compiled().to_yaml() == compiled().to_yaml()


def test_a_thousand_learners_fit() -> None:
    """A large job neither takes long to compile nor comes near a cluster's limit of an object's size."""
    begun = time.process_time()
    result = compiled(learners=1000)
    assert time.process_time() - begun < 2
    assert len(json.dumps(result.workflow["spec"])) < 64 * 1024


COMMANDS = [
    "echo {{workflow.name}} {{=1+1}} {{inputs.parameters.x}}",
    "echo $$ $(HOME) $HOME ${HOME} `id`",
    """echo 'single' "double" \\ back""",
    "echo žluťoučký 🐎",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_a_user_writes_goes_through_a_field_that_argo_rewrites(command: str) -> None:
    """Argo and Kubernetes rewrite {{…}}, $$ and $(VAR) in a Workflow; a command must reach the shell as written."""
    result = compiled(
        framework={**FRAMEWORK, "command": command}, name=command, env={"GREETING": command.replace("${HOME}", "")}
    )
    assert JobSpec.from_json(result.config["job.json"].decode()).command == command
    assert command not in json.dumps(result.workflow["spec"], ensure_ascii=False)


def test_secrets_are_in_secrets_only() -> None:
    """Who may read Workflows and ConfigMaps learns no password."""
    store = {
        "id": "s",
        "type": "s3_datastore",
        "training_data": {"container": "d"},
        "connection": {"auth_url": "http://s3", "user_name": "someone", "password": "${S3_PASSWORD}"},
    }
    result = compiled(
        {"S3_PASSWORD": "hush", "TOKEN": "psst"}, data_stores=[store], env={"API": "${TOKEN}", "LEVEL": "1"}
    )
    everything_else = json.dumps(result.workflow) + str(result.config)
    assert "hush" not in everything_else
    assert "psst" not in everything_else
    assert json.loads(result.secrets["-store"]["credentials.json"]) == {"password": "hush", "user_name": "someone"}
    assert json.loads(result.secrets[""]["env.json"]) == {"API": "psst"}
    assert "store-credentials" not in json.dumps(template(result, "learner")), "learners get no store credentials"
    assert "automountServiceAccountToken" not in template(result, "learner"), "learners get no cluster token"


def test_a_name_missing_from_the_environment_is_said() -> None:
    """A forgotten `export` shows at once, not as an empty password an hour later."""
    with pytest.raises(ManifestError, match=r"\$\{NOWHERE\}, which is not set in your environment; export NOWHERE"):
        compiled(env={"A": "${NOWHERE}"})


def test_only_defaults_are_clamped_to_a_small_machine() -> None:
    """FfDL's defaults ask for 5 CPUs; a laptop still runs the job, with a word. What is written is never changed."""
    small = Machine(cpus=2, memory=400 * 10**6)
    chosen = TrainingJob.from_arguments(machine=small, name="j", framework=FRAMEWORK, learners=2)
    assert (chosen.spec.cpus, chosen.spec.memory) == (1.0, 200 * 10**6)
    assert any("cpus is not set: 1 a learner" in note for note in chosen.notes)
    assert len(chosen.notes) == 2
    written = TrainingJob.from_arguments(machine=small, name="j", framework=FRAMEWORK, cpus=8, memory="2GB")
    assert (written.spec.cpus, written.spec.memory, written.notes) == (8.0, 2 * 10**9, ())
    roomy = TrainingJob.from_arguments(name="j", framework=FRAMEWORK)
    assert (roomy.spec.cpus, roomy.spec.memory) == (5.0, 512 * 10**6), "FfDL's defaults"


@pytest.mark.parametrize(
    ("keys", "policy"),
    [
        ({}, "all"),
        ({"learners": 2}, "first"),
        ({"learners": 2, "distribution": {"kind": "none"}}, "all"),
        ({"learners": 2, "completion": "master"}, "master"),
    ],
)
def test_completion_is_ffdls_for_ffdls_manifests(keys: dict[str, Any], policy: str) -> None:
    """FfDL's examples rely on the first learner's end being the job's."""
    assert JobSpec.from_json(compiled(**keys).config["job.json"].decode()).completion == policy


@pytest.mark.parametrize(
    ("keys", "name", "wanted"),
    [
        ({"learners": 2}, "horovod", ("mpi", "per-gpu", "master")),
        ({"learners": 1, "gpus": 4}, "pytorchmpi", ("mpi", "per-gpu", "master")),
        ({"learners": 1}, "horovod", ("none", "", "all")),
        ({"learners": 2}, "numpy", ("none", "", "first")),
        ({"learners": 2, "distribution": {"kind": "peer"}}, "horovod", ("peer", "", "all")),
        ({"learners": 2, "distribution": {"kind": "mpi"}}, "numpy", ("mpi", "", "master")),
    ],
)
def test_ffdl_started_some_frameworks_by_mpirun(keys: dict[str, Any], name: str, wanted: tuple[str, ...]) -> None:
    """Their manifests name a command for one process, and say nothing of MPI."""
    framework = {"name": name, "version": "latest", "command": "python train.py"}
    spec = JobSpec.from_json(compiled(**keys, framework=framework).config["job.json"].decode())
    assert (spec.distribution, spec.processes, spec.completion) == wanted


def test_retry_widens_what_is_tried_again() -> None:
    """A user's own failure is final unless they granted restarts."""
    final = template(compiled(), "learner")["retryStrategy"]["expression"]
    granted = template(compiled(retry={"attempts": 2}), "learner")["retryStrategy"]["expression"]
    assert granted.startswith(final)
    assert "!(asInt(lastRetry.exitCode) in [64, 70]" in granted


def servers(**keys: Any) -> dict[str, Any]:
    return {"learners": 3, "distribution": {"kind": "parameter-server", **keys}}


def test_parameter_servers_are_pods_of_their_own() -> None:
    """FfDL #92: what needs no GPU gets none, and what it needs is its own."""
    result = compiled(gpus=2, cpus=4, memory="4GB", **servers(servers=2, cpus=0.5, memory="1GB"))
    server = template(result, "parameter-server")["container"]
    assert server["resources"]["limits"] == server["resources"]["requests"] == {"cpu": "500m", "memory": "1000000000"}
    assert "secretRef" not in json.dumps(server)
    tasks = {task["name"]: task for task in template(result, "training")["dag"]["tasks"]}
    assert tasks["parameter-server"]["withParam"] == "[0,1]"
    assert "parameter-server" in tasks["store-results"]["depends"]
    spec = JobSpec.from_json(result.config["job.json"].decode())
    assert (spec.servers, spec.mode, spec.completion) == (2, "sync", "all")


@pytest.mark.parametrize("mode", ["tensorflow", "mxnet"])
def test_a_framework_s_own_servers_are_what_learners_are_but_for_gpus(mode: str) -> None:
    """They run the user's command in the user's image, with what servers were given."""
    result = compiled(gpus=2, cpus=4, **servers(cpus=0.5, mode=mode), env_from_secret=["mine"])
    pods = [template(result, name) for name in ("learner", "parameter-server")]
    learner, server = (pod["container"] for pod in pods)
    for key in ("image", "command", "envFrom", "volumeMounts"):
        assert server[key] == learner[key]
    assert pods[1]["initContainers"] == pods[0]["initContainers"]
    assert server["resources"]["limits"] == {"cpu": "500m", "memory": "512000000"}
    spec = JobSpec.from_json(result.config["job.json"].decode())
    assert (spec.servers, spec.server_cpus, spec.mode, spec.lockstep) == (1, 0.5, mode, True)


def test_parameter_servers_without_a_word_are_one() -> None:
    spec = JobSpec.from_json(compiled(**servers(mode="easgd")).config["job.json"].decode())
    assert (spec.servers, spec.mode) == (1, "easgd")


def test_defaults_leave_parameter_servers_room_on_a_small_machine() -> None:
    """It works the first time: what nobody has written down fits."""
    small = Machine(cpus=2, memory=400 * 10**6)
    chosen = TrainingJob.from_arguments(machine=small, name="j", framework=FRAMEWORK, **servers())
    assert (chosen.spec.cpus, chosen.server_cpus) == (0.5, 0.5)
    assert (chosen.spec.memory, chosen.server_memory) == (100 * 10**6, 100 * 10**6)
    chosen = TrainingJob.from_arguments(machine=small, name="j", framework=FRAMEWORK, cpus=0.6, **servers())
    assert (chosen.spec.cpus, chosen.server_cpus) == (0.6, 0.2)
    roomy = TrainingJob.from_arguments(name="j", framework=FRAMEWORK, memory="2GB", **servers())
    assert (roomy.spec.cpus, roomy.server_cpus, roomy.server_memory) == (5.0, 1.0, 2 * 10**9)
