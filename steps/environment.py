"""The environment of a learner's command: FfDL's variables, the frameworks' own, the user's, and nothing of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..learner import contract

# what a cluster puts into every pod, and what is ours or the executor's: no business of the command
_SERVICES = ("ALERTMANAGER", "DLAAS", "ETCD", "GRAFANA", "HOSTNAME", "KUBERNETES", "MONGO", "PUSHGATEWAY")
_DROPPED = (*_SERVICES, "FFDL_", "ARGO_")  # prefixes
_KEPT = "FFDL_KEPT_"  # before the names of the image's LD_ variables: the agent's launcher keeps them from its loader
_VALUE_MOST = 120_000  # bytes; the kernel takes 128 KiB for one string


@dataclass(frozen=True)
class Place:
    """Where a learner stands: `index` from 0, the address and port at which the first one can be met."""

    index: int
    rank: int  # among those that train together
    size: int
    master_address: str
    master_port: int
    socket: str  # the agent's
    library: str  # a folder with `ffdl.learner`
    role: str = contract.LEARNER
    meeting: Sequence[tuple[str, int]] = ()  # where the frameworks of those that train together meet, by rank
    serving: Sequence[tuple[str, int]] = ()  # and their servers, where these are their own
    mpi: Mapping[str, str] = field(default_factory=dict)  # what MPI's launchers are told


def given() -> dict[str, str]:
    """The environment that this process was started with: Python puts LC_CTYPE into its own where no locale is set."""
    with open("/proc/self/environ", "rb") as stream:
        entries = [os.fsdecode(entry).partition("=") for entry in stream.read().split(b"\0") if entry]
    return {name: value for name, _, value in entries}


def inherited() -> dict[str, str]:
    """The environment of the command, for a program of ours that is started in it and by the agent's launcher."""
    return {name.removeprefix(_KEPT): value for name, value in given().items()}


def thread_count(cpus: float) -> int:
    """Threads that `cpus` give work to: rounded, at least 1."""
    return max(1, int(cpus + 0.5))


def learner_environment(
    spec: contract.JobSpec, job_id: str, place: Place, base: Mapping[str, str], secret: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of the command of learner `place.index`, from the pod's own `base`.

    The job's `env` and `secret` go over the defaults for threads; what FfDL promises goes over everything.
    """
    threads = str(thread_count(spec.cpus))
    kept = {name: value for name, value in base.items() if not name.startswith(_DROPPED)}
    kept |= {name.removeprefix(_KEPT): value for name, value in base.items() if name.startswith(_KEPT)}
    defaults = {"PYTHONUNBUFFERED": "1", **dict.fromkeys(contract.THREAD_ENVS, threads), **place.mpi}
    user = {**kept, **defaults, **spec.env, **secret}
    model_dir = contract.path(contract.MODEL_DIR)
    own = {
        "DATA_DIR": spec.data_dir(),
        "RESULT_DIR": spec.result_dir(job_id),
        "RESULT_BUCKET_DIR": spec.result_bucket_dir(),
        "CHECKPOINT_DIR": contract.path(contract.CHECKPOINT_DIR),
        "MODEL_DIR": model_dir,
        "LOG_DIR": contract.path(contract.LOG_DIR),
        "JOB_STATE_DIR": contract.path(contract.JOB_DIR),
        "TRAINING_ID": job_id,
        "TRAINING_COMMAND": spec.command,
        "GPU_COUNT": f"{spec.gpus:.6f}",
        "NUM_GPUS": str(int(spec.gpus)),
        "NUM_LEARNERS": str(spec.learners),
        "LEARNER_NAME_PREFIX": job_id,
        "LEARNER_ID": str(place.index + 1),
        "DOWNWARD_API_POD_NAME": base.get("DOWNWARD_API_POD_NAME") or f"{job_id}-{place.index}",
        "DOWNWARD_API_POD_NAMESPACE": base.get("DOWNWARD_API_POD_NAMESPACE") or "default",
        "MASTER_ADDR": place.master_address,
        "MASTER_PORT": str(place.master_port),
        "PYTHONPATH": ":".join(part for part in (place.library, model_dir, user.get("PYTHONPATH", "")) if part),
        contract.AGENT_SOCKET_ENV: place.socket,
        **_ranks(spec, place),
    }
    if place.role == contract.PARAMETER_SERVER:
        del own["LEARNER_ID"]
    if not spec.gpus:
        own["CUDA_VISIBLE_DEVICES"] = ""  # an image may ask its node for all GPUs, whoever has them
    if len(spec.command.encode()) > _VALUE_MOST:
        del own["TRAINING_COMMAND"]
    return {**user, **own}


def of_process(base: Mapping[str, str], local: int, count: int) -> dict[str, str]:
    """The environment of process `local` of the `count` of a learner with the environment `base`, as by torchrun."""
    group, groups = int(base["RANK"]), int(base["WORLD_SIZE"])
    rank, size = str(group * count + local), str(groups * count)
    own = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": str(group),
        "GROUP_WORLD_SIZE": str(groups),
    }
    if "JAX_PROCESS_ID" in base:
        own |= {"JAX_PROCESS_ID": rank, "JAX_NUM_PROCESSES": size, "JAX_LOCAL_DEVICE_IDS": str(local)}
    # a process of TensorFlow has all GPUs of its learner, and an address of its own
    return {name: value for name, value in {**base, **own}.items() if name != "TF_CONFIG"}


def _ranks(spec: contract.JobSpec, place: Place) -> dict[str, str]:
    """The frameworks' words for who trains together."""
    if spec.distribution == contract.MPI or (place.role == contract.PARAMETER_SERVER and not spec.own_servers):
        return {}  # MPI has its own, for each process
    pytorch = {"RANK": str(place.rank), "WORLD_SIZE": str(place.size), "LOCAL_RANK": "0"}
    if spec.mode == contract.MXNET:
        ranks = _mxnet(place)
    elif len(place.meeting) + len(place.serving) > 1:
        ranks = _tensorflow(place)
    else:
        ranks = {}
    if place.role == contract.PARAMETER_SERVER:
        return ranks
    return {**pytorch, **ranks, **(_jax(place) if len(place.meeting) > 1 else {})}


def _tensorflow(place: Place) -> dict[str, str]:
    chief, *workers = _addresses(place.meeting)
    cluster = {"chief": [chief], "worker": workers}
    if place.serving:
        cluster["ps"] = _addresses(place.serving)
    task: dict[str, object] = {"type": "chief", "index": 0}
    if place.role == contract.PARAMETER_SERVER:
        task = {"type": "ps", "index": place.index}
    elif place.rank:
        task = {"type": "worker", "index": place.rank - 1}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def _jax(place: Place) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": _addresses(place.meeting)[0],
        "JAX_NUM_PROCESSES": str(place.size),
        "JAX_PROCESS_ID": str(place.rank),
    }


def _mxnet(place: Place) -> dict[str, str]:
    """For ps-lite. The scheduler is where the first server is."""
    host, port = place.serving[0] if place.serving else ("", 0)
    return {
        "DMLC_ROLE": "server" if place.role == contract.PARAMETER_SERVER else "worker",
        "DMLC_PS_ROOT_URI": host,
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_SERVER": str(len(place.serving)),
        "DMLC_NUM_WORKER": str(place.size),
    }


def _addresses(places: Sequence[tuple[str, int]]) -> list[str]:
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in places]
