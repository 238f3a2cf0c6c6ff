"""A training job -> one Argo Workflow and the ConfigMap and Secrets it reads. Same job in, same bytes out."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import yaml
from hera.workflows import DAG, Container, Env, Parameter, Resource, Step, Steps, Task, UserContainer, Workflow
from hera.workflows import models as m

from ..learner import contract
from .job import TrainingJob
from .redaction import without_credentials
from .site import OUR_USER, Site

STEPS_IMAGE = "ffdl-steps"
AGENT_IMAGE = "ffdl-agent"
EXECUTOR_ACCOUNT = "ffdl-executor"
HELPER_ACCOUNT = "ffdl-helper"
ENTRYPOINT, EXIT_HANDLER = "training", "exit"
JOB_ID = "{{workflow.name}}"
STEPS_MEMORY = "64Mi"
NOT_FINAL_FOR_A_STEP = f"lastRetry.status == 'Error' || asInt(lastRetry.exitCode) != {contract.EXIT_FINAL}"


@dataclass(frozen=True)
class Compiled:
    """The Workflow object, its ConfigMap's files and its Secrets.

    Secrets go by what follows the job's id in their names: nothing, `-store`, `-pull`.
    """

    workflow: dict[str, Any]
    config: dict[str, bytes]
    secrets: dict[str, dict[str, bytes]]

    def to_yaml(self) -> str:
        return to_yaml(self.workflow)


def to_yaml(value: Any) -> str:
    """Plain block YAML, keys in the order they were put."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def compile_job(
    job: TrainingJob,
    code: bytes | None = None,
    job_id: str | None = None,
    manifest_text: bytes | None = None,
    site: Site | None = None,
) -> Compiled:
    """Compiles `job` for `site`. Without `job_id` the Workflow gets a `generateName`; nothing else depends on it."""
    config = {contract.JOB_FILE: job.spec.to_json().encode()}
    if manifest_text is not None:
        config[contract.MANIFEST_FILE] = without_credentials(manifest_text)
    if code is not None:
        config[contract.CODE_FILE] = code
    secrets = {"": {contract.SECRET_ENV_FILE: _json(dict(job.secret_env))}}
    if job.registry:
        secrets["-pull"] = {".dockerconfigjson": _docker_config(job)}
    if job.credentials:
        secrets["-store"] = {contract.STORE_CREDENTIALS_FILE: _json(dict(job.credentials))}
    return Compiled(workflow=workflow(job, job_id, site).to_dict(), config=config, secrets=secrets)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


def _docker_config(job: TrainingJob) -> bytes:
    login = base64.b64encode(f"token:{job.registry['password']}".encode()).decode()
    return _json({"auths": {job.registry["server"]: {"auth": login, "email": job.registry["email"]}}})


def workflow(job: TrainingJob, job_id: str | None = None, site: Site | None = None) -> Workflow:
    """The job as a Hera Workflow, for those who want to build on it."""
    site = site or Site()
    peers, servers = job.spec.learners > 1, job.spec.servers
    annotations = {
        contract.ANNOTATION_NAME: json.dumps(job.spec.name, ensure_ascii=False),
        contract.ANNOTATION_START_TIMEOUT: f"{job.spec.start_timeout:g}",
        contract.ANNOTATION_SUMMARY: _json(job.summary()).decode(),
    }
    with Workflow(
        name=job_id,
        generate_name=None if job_id else "training-",
        annotations=annotations,
        entrypoint=ENTRYPOINT,
        on_exit=EXIT_HANDLER,
        service_account_name=EXECUTOR_ACCOUNT,
        executor=m.ExecutorConfig(service_account_name=EXECUTOR_ACCOUNT),
        automount_service_account_token=False,
        image_pull_secrets=[m.LocalObjectReference(name=f"{JOB_ID}-pull")] if job.registry else None,
        security_context=m.PodSecurityContext(**_group(), seccomp_profile=m.SeccompProfile(type="RuntimeDefault")),
        ttl_strategy=m.TTLStrategy(seconds_after_completion=site.ttl),
        pod_gc=m.PodGC(strategy="OnWorkflowCompletion", delete_delay_duration=f"{site.pod_ttl}s"),
        # a failed job keeps its volume: what could not be stored is still there
        volume_claim_gc=m.VolumeClaimGC(strategy="OnWorkflowSuccess"),
        volume_claim_templates=[_claim(job)],
        volumes=_volumes(job),
    ) as result:
        download = _step(job, site, "download", "ffdl.steps.download")
        checkpoint = _step(job, site, "checkpoint", "ffdl.steps.checkpoint", cluster_token=True)
        store = _step(job, site, "store-results", "ffdl.steps.store_results", outcome=True)
        store_after_failure = _step(
            job, site, "store-after-failure", "ffdl.steps.store_results", outcome=True, cluster_token=True
        )
        learner = _learner(job, site)
        server = _parameter_server(job, site) if servers else None
        network = _network() if peers else None
        with DAG(name=ENTRYPOINT, fail_fast=False):
            Task(name="download", template=download)
            Task(name="checkpoint", template=checkpoint)
            if network is not None:
                Task(name="network", template=network)
            Task(
                name="learner",
                template=learner,
                depends="download && network" if peers else "download",
                with_param=_indices(job.spec.learners),
                arguments={"index": "{{item}}"},
            )
            if server is not None:
                Task(
                    name=contract.PARAMETER_SERVER,
                    template=server,
                    depends="download",
                    with_param=_indices(servers),
                    arguments={"index": "{{item}}"},
                )
            Task(
                name="store-results",
                template=store,
                depends=f"learner && {contract.PARAMETER_SERVER} && checkpoint" if servers else "learner && checkpoint",
                arguments={"outcome": "Succeeded"},
            )
        with Steps(name=EXIT_HANDLER):
            Step(
                name="store-results",
                template=store_after_failure,
                when="{{workflow.status}} != Succeeded",
                arguments={"outcome": "{{workflow.status}}"},
            )
    return result


def _indices(count: int) -> str:
    return json.dumps(list(range(count)), separators=(",", ":"))


def _claim(job: TrainingJob) -> m.PersistentVolumeClaim:
    return m.PersistentVolumeClaim(
        metadata=m.ObjectMeta(name="job"),
        spec=m.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteMany"],
            resources=m.VolumeResourceRequirements(requests={"storage": m.Quantity(root=str(job.storage))}),
        ),
    )


def _volumes(job: TrainingJob) -> list[m.Volume]:
    volumes = [
        m.Volume(name="config", config_map=m.ConfigMapVolumeSource(name=JOB_ID)),
        m.Volume(name="token", secret=m.SecretVolumeSource(secret_name=JOB_ID)),
        m.Volume(name="run", empty_dir=m.EmptyDirVolumeSource()),
        m.Volume(name="agent", empty_dir=m.EmptyDirVolumeSource()),
        m.Volume(
            name="shm", empty_dir=m.EmptyDirVolumeSource(medium="Memory", size_limit=m.Quantity(root=str(job.shm)))
        ),
    ]
    if job.credentials or job.store_secret:
        volumes.append(
            m.Volume(
                name="store-credentials", secret=m.SecretVolumeSource(secret_name=job.store_secret or f"{JOB_ID}-store")
            )
        )
    if job.spec.results is not None and job.spec.results.kind == "claim":
        source = m.PersistentVolumeClaimVolumeSource(claim_name=contract.RESULTS_CLAIM)
        volumes.append(m.Volume(name="results-store", persistent_volume_claim=source))
    if job.host_data:
        volumes.append(m.Volume(name="host-data", host_path=m.HostPathVolumeSource(path=job.host_data)))
    if job.host_results:
        source_of_results = m.HostPathVolumeSource(path=job.host_results, type="DirectoryOrCreate")
        volumes.append(m.Volume(name="host-results", host_path=source_of_results))
    return volumes


def _mount(volume: str, path: str, sub_path: str | None = None, read_only: bool | None = None) -> m.VolumeMount:
    return m.VolumeMount(name=volume, mount_path=path, sub_path=sub_path, read_only=read_only)


def _job_mounts(read_only_helper: bool) -> list[m.VolumeMount]:
    return [
        _mount("job", contract.JOB_DIR, "job"),
        _mount("job", contract.DATA_ROOT, "data"),
        _mount("job", contract.RESULTS_ROOT, "results"),
        _mount("job", contract.HELPER_DIR, "helper", True if read_only_helper else None),
        _mount("config", contract.CONFIG_DIR, read_only=True),
        _mount("token", contract.TOKEN_DIR, read_only=True),
    ]


def _env(**more: str) -> list[Env | m.EnvVar]:
    values: list[Env | m.EnvVar] = [
        Env(name=contract.JOB_ID_ENV, value=JOB_ID),
        Env(name=contract.ATTEMPT_ENV, value="{{retries}}"),
        _field(contract.POD_IP_ENV, "status.podIP"),
        _field("DOWNWARD_API_POD_NAME", "metadata.name"),
        _field("DOWNWARD_API_POD_NAMESPACE", "metadata.namespace"),
    ]
    return values + [Env(name=name, value=value) for name, value in more.items()]


def _field(name: str, path: str) -> m.EnvVar:
    return m.EnvVar(name=name, value_from=m.EnvVarSource(field_ref=m.ObjectFieldSelector(field_path=path)))


def _retry(expression: str) -> m.RetryStrategy:
    return m.RetryStrategy(
        retry_policy="Always",
        limit=m.IntOrString(root="1000000"),
        backoff=m.Backoff(duration="5s", factor=m.IntOrString(root=1)),
        expression=expression,
    )


def learner_retry_expression(job: TrainingJob) -> str:
    """Which ends of a learner's attempt are not final: infrastructure always, the user's own as `retry.on` grants."""
    again = f"lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [-1, {contract.EXIT_AGAIN}, 143]"
    again += " || (asInt(lastRetry.exitCode) == 137 && !(lastRetry.message contains 'OOMKilled'))"
    if job.spec.retry_attempts and "out-of-memory" in job.spec.retry_on:
        again += " || lastRetry.message contains 'OOMKilled'"
    if job.spec.retry_attempts and "crash" in job.spec.retry_on:
        final = f"[{contract.EXIT_ARGO}, {contract.EXIT_FINAL}]"
        again += f" || !(asInt(lastRetry.exitCode) in {final} || lastRetry.message contains 'OOMKilled')"
    return again


def _group() -> dict[str, Any]:
    """Files of the job's volume belong to a group that all of its pods are in, whatever users their images have."""
    return {"fs_group": OUR_USER, "fs_group_change_policy": "OnRootMismatch"}


def _our_pod() -> m.PodSecurityContext:
    return m.PodSecurityContext(
        **_group(),
        run_as_non_root=True,
        run_as_user=OUR_USER,
        run_as_group=OUR_USER,
        seccomp_profile=m.SeccompProfile(type="RuntimeDefault"),
    )


def unprivileged(**more: Any) -> m.SecurityContext:
    """What the `restricted` standard for pods asks of a container."""
    return m.SecurityContext(
        allow_privilege_escalation=False,
        capabilities=m.Capabilities(drop=["ALL"]),
        run_as_non_root=True,
        run_as_user=OUR_USER,
        run_as_group=OUR_USER,
        **more,
    )


def _step(
    job: TrainingJob,
    site: Site,
    name: str,
    module: str,
    *,
    cluster_token: bool = False,
    outcome: bool = False,
) -> Container:
    mounts = [
        *_job_mounts(read_only_helper=False),
        _mount("job", contract.JOURNAL_DIR, "journal"),
        _mount("run", contract.RUN_DIR),
    ]
    if job.credentials or job.store_secret:
        mounts.append(_mount("store-credentials", contract.STORE_SECRET_DIR, read_only=True))
    if job.spec.results is not None and job.spec.results.kind == "claim":
        mounts.append(_mount("results-store", contract.STORE_DIR))
    if job.host_data and name == "download":
        mounts.append(_mount("host-data", contract.HOST_DATA_DIR, read_only=True))
    if job.host_results:
        mounts.append(_mount("host-results", contract.HOST_RESULTS_DIR))
    requests = {"cpu": m.Quantity(root="10m"), "memory": m.Quantity(root=STEPS_MEMORY)}
    grace = int(job.spec.halt_grace + 2 * contract.KILL_GRACE)
    return Container(
        name=name,
        image=site.image(STEPS_IMAGE),
        image_pull_policy=site.pull_policy,
        command=["python3", "-m", module],
        env=_env(**({contract.OUTCOME_ENV: "{{inputs.parameters.outcome}}"} if outcome else {})),
        inputs=[Parameter(name="outcome")] if outcome else None,
        labels={contract.LABEL_JOB: JOB_ID, contract.LABEL_ROLE: name},
        resources=m.ResourceRequirements(requests=requests),
        security_context=unprivileged(read_only_root_filesystem=True),
        pod_security_context=_our_pod(),
        service_account_name=HELPER_ACCOUNT if cluster_token else None,
        automount_service_account_token=True if cluster_token else None,
        volume_mounts=mounts,
        retry_strategy=_retry(NOT_FINAL_FOR_A_STEP),
        pod_spec_patch=_json({"terminationGracePeriodSeconds": grace}).decode(),
    )


def _learner(job: TrainingJob, site: Site) -> Container:
    spec = job.spec
    amounts = {"cpu": f"{round(spec.cpus * 1000)}m", "memory": str(spec.memory)}
    if spec.gpus:
        amounts["nvidia.com/gpu"] = str(int(spec.gpus))
    quantities = {name: m.Quantity(root=amount) for name, amount in amounts.items()}
    patch: dict[str, Any] = {"hostname": f"{JOB_ID}-{{{{inputs.parameters.index}}}}"}
    if spec.learners > 1:
        patch["subdomain"] = JOB_ID
    patch["terminationGracePeriodSeconds"] = int(spec.halt_grace + contract.KILL_GRACE)
    return Container(
        name="learner",
        env=_env(**{contract.INDEX_ENV: "{{inputs.parameters.index}}"}),
        inputs=[Parameter(name="index")],
        labels={contract.LABEL_JOB: JOB_ID, contract.LABEL_ROLE: "learner"},
        resources=m.ResourceRequirements(requests=quantities, limits=quantities),
        node_selector=dict(job.node_selector) or None,
        tolerations=[m.Toleration(**t) for t in job.tolerations] or None,
        priority_class_name=job.priority_class,
        retry_strategy=_retry(learner_retry_expression(job)),
        pod_spec_patch=json.dumps(patch),
        **_of_the_user(job, site),
    )


def _parameter_server(job: TrainingJob, site: Site) -> Container:
    amounts = {"cpu": f"{round(job.server_cpus * 1000)}m", "memory": str(job.server_memory)}
    quantities = {name: m.Quantity(root=amount) for name, amount in amounts.items()}
    patch = {
        "hostname": f"{JOB_ID}-ps-{{{{inputs.parameters.index}}}}",
        "terminationGracePeriodSeconds": int(job.spec.halt_grace + contract.KILL_GRACE),
    }
    role = {contract.ROLE_ENV: contract.PARAMETER_SERVER, contract.INDEX_ENV: "{{inputs.parameters.index}}"}
    return Container(
        name=contract.PARAMETER_SERVER,
        env=_env(**role),
        inputs=[Parameter(name="index")],
        labels={contract.LABEL_JOB: JOB_ID, contract.LABEL_ROLE: contract.PARAMETER_SERVER},
        resources=m.ResourceRequirements(requests=quantities, limits=quantities),
        retry_strategy=_retry(learner_retry_expression(job)),
        pod_spec_patch=json.dumps(patch),
        **(_of_the_user(job, site) if job.spec.own_servers else _of_ours(site)),
    )


def _of_ours(site: Site) -> dict[str, Any]:
    """A server that is our program."""
    return {
        "image": site.image(STEPS_IMAGE),
        "image_pull_policy": site.pull_policy,
        # of our own package, not what lies in the working folder
        "command": ["python3", "-P", "-m", "ffdl.steps.agent"],
        "security_context": unprivileged(read_only_root_filesystem=True),
        "pod_security_context": _our_pod(),
        "volume_mounts": [*_job_mounts(read_only_helper=True), _mount("run", contract.RUN_DIR)],
    }


def _of_the_user(job: TrainingJob, site: Site) -> dict[str, Any]:
    """What runs the user's command, in the user's image."""
    mounts = [
        *_job_mounts(read_only_helper=True),
        _mount("run", contract.RUN_DIR),
        _mount("agent", contract.AGENT_DIR, read_only=True),
        _mount("shm", "/dev/shm"),
    ]
    if job.host_data:
        mounts.append(_mount("host-data", contract.HOST_DATA_DIR, read_only=True))
    return {
        "image": site.image(job.image),
        "command": [contract.AGENT_PYTHON, "-m", "ffdl.steps.agent"],
        "env_from": [m.EnvFromSource(secret_ref=m.SecretEnvSource(name=name)) for name in job.env_from_secret] or None,
        "init_containers": [
            UserContainer(
                name="agent",
                image=site.image(AGENT_IMAGE),
                image_pull_policy=site.pull_policy,
                command=["python3", "-m", "ffdl.steps.install_agent", contract.AGENT_DIR],
                security_context=unprivileged(read_only_root_filesystem=True),
                volume_mounts=[_mount("agent", contract.AGENT_DIR)],
            )
        ],
        "security_context": unprivileged() if site.learners_non_root else None,
        "pod_security_context": _our_pod() if site.learners_non_root else None,
        "volume_mounts": mounts,
    }


def _network() -> Resource:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": JOB_ID, "labels": {contract.LABEL_JOB: JOB_ID}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {contract.LABEL_JOB: JOB_ID, contract.LABEL_ROLE: "learner"},
            "ports": [{"name": "ssh", "port": 22}, {"name": "tf-distributed", "port": 2222}],
        },
    }
    return Resource(
        name="network",
        labels={contract.LABEL_JOB: JOB_ID, contract.LABEL_ROLE: "network"},
        pod_security_context=_our_pod(),
        action="apply",
        set_owner_reference=True,
        manifest=to_yaml(service),
        retry_strategy=_retry(NOT_FINAL_FOR_A_STEP),
    )
