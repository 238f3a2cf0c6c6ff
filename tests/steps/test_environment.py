"""The environment of a learner's command."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ffdl.learner import contract
from ffdl.steps.environment import Place, learner_environment, thread_count

PLACE = Place(
    index=1, rank=1, size=3, master_address="job-0.job", master_port=23456, socket="/run/agent.sock", library="/run/lib"
)


def environment(
    base: dict[str, str] | None = None, secret: dict[str, str] | None = None, place: Place = PLACE, **changes: Any
) -> dict[str, str]:
    values: dict[str, Any] = {"name": "n", "command": "python $A", "framework": "f", "framework_version": "v"}
    values |= {"learners": 3, "cpus": 2.0, "gpus": 1.0, "memory": 1}
    values |= {"results": contract.Store("s3", "out"), "data": contract.Store("s3", "in")}
    spec = contract.JobSpec(**(values | changes))
    return learner_environment(spec, "job", place, base or {}, secret or {})


def test_what_ffdl_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts written for FfDL find their data, results and place by these names."""
    monkeypatch.delenv(contract.ROOT_ENV, raising=False)
    wanted = {
        "DATA_DIR": "/mnt/data/in",
        "RESULT_DIR": "/mnt/results/out/job",
        "RESULT_BUCKET_DIR": "/mnt/results/out",
        "CHECKPOINT_DIR": "/job/checkpoints",
        "MODEL_DIR": "/job/model-code",
        "LOG_DIR": "/job/logs",
        "JOB_STATE_DIR": "/job",
        "TRAINING_ID": "job",
        "TRAINING_COMMAND": "python $A",
        "GPU_COUNT": "1.000000",
        "NUM_LEARNERS": "3",
        "LEARNER_NAME_PREFIX": "job",
        "LEARNER_ID": "2",
        "DOWNWARD_API_POD_NAME": "job-1",
        "DOWNWARD_API_POD_NAMESPACE": "default",
        "MASTER_ADDR": "job-0.job",
        "MASTER_PORT": "23456",
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "OMP_NUM_THREADS": "2",
        "PYTHONUNBUFFERED": "1",
    }
    made = environment()
    assert {name: made[name] for name in wanted} == wanted


def test_copied_data_lies_in_the_job_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """FfDL's copy mode has other paths, and scripts that hard-code them."""
    monkeypatch.delenv(contract.ROOT_ENV, raising=False)
    made = environment(data=contract.Store("s3", "in", "copy"), results=contract.Store("s3", "out", "copy"))
    assert (made["DATA_DIR"], made["RESULT_DIR"]) == ("/job/in", "/job/out")


def test_nothing_of_ours_or_the_clusters_gets_through() -> None:
    """The command sees a clean environment: no tokens, no service variables that change with the cluster."""
    base = {
        "FFDL_ROOT": "/r",
        "FFDL_POD_IP": "1",
        "KUBERNETES_SERVICE_HOST": "x",
        "ETCD_PORT": "1",
        "ARGO_TEMPLATE": "{}",
    }
    made = environment({**base, "HOME": "/root", "CUDA_VISIBLE_DEVICES": "1"})
    assert not base.keys() & made.keys()
    assert (made["HOME"], made["CUDA_VISIBLE_DEVICES"]) == ("/root", "1")
    assert made[contract.AGENT_SOCKET_ENV] == "/run/agent.sock"


def test_who_wins() -> None:
    """The user's values beat the defaults; what the platform promises beats the user's."""
    env = {"OMP_NUM_THREADS": "7", "RANK": "9", "A": "$(HOME) $$ {{x}} é", "PYTHONPATH": "/mine"}
    made = environment({"A": "base", "MKL_NUM_THREADS": "64"}, {"KEY": "secret", "OMP_NUM_THREADS": "8"}, env=env)
    assert (made["OMP_NUM_THREADS"], made["MKL_NUM_THREADS"], made["RANK"]) == ("8", "2", "1")
    assert (made["A"], made["KEY"]) == ("$(HOME) $$ {{x}} é", "secret")
    assert made["PYTHONPATH"].split(":")[0] == "/run/lib"
    assert made["PYTHONPATH"].split(":")[-1] == "/mine"


@pytest.mark.parametrize(("cpus", "threads"), [(0.1, 1), (0.5, 1), (1.4, 1), (1.5, 2), (2.5, 3), (16.0, 16)])
def test_threads_follow_the_cpus(cpus: float, threads: int) -> None:
    """More threads than CPUs make training slower, and results that depend on the machine."""
    assert thread_count(cpus) == threads


def test_a_command_too_long_for_a_variable_is_left_out() -> None:
    """A variable of more than 128 KiB would keep the command from starting at all."""
    assert "TRAINING_COMMAND" not in environment(command="x" * 200000)


def test_a_learner_without_gpus_sees_none() -> None:
    """An image that asks its node for all GPUs would otherwise compute on those of other jobs."""
    assert environment({"CUDA_VISIBLE_DEVICES": "0,1"}, gpus=0.0)["CUDA_VISIBLE_DEVICES"] == ""


def test_frameworks_find_who_trains_together() -> None:
    """TensorFlow and JAX have words of their own; a learner on its own gets none of them, and trains by itself."""
    assert not {"TF_CONFIG", "JAX_PROCESS_ID"} & environment().keys()
    meeting = [("10.0.0.1", 20001), ("10.0.0.2", 20002), ("fd00::3", 20003)]
    cluster = {"chief": ["10.0.0.1:20001"], "worker": ["10.0.0.2:20002", "[fd00::3]:20003"]}
    for rank, task in enumerate([("chief", 0), ("worker", 0), ("worker", 1)]):
        found = environment(place=replace(PLACE, rank=rank, meeting=meeting))
        assert json.loads(found["TF_CONFIG"]) == {
            "cluster": cluster,
            "task": dict(zip(("type", "index"), task, strict=True)),
        }
        assert found["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:20001"
        assert (found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == ("3", str(rank))


def test_mpi_has_words_of_its_own_for_who_is_who() -> None:
    """RANK of a learner would be wrong in each of its processes; what the user says of MPI goes before what we do."""
    place = replace(PLACE, meeting=(("10.0.0.1", 5000), ("10.0.0.2", 5001)), mpi={"HYDRA_LAUNCHER": "ssh", "A": "ours"})
    made = environment(place=place, distribution="mpi", env={"A": "theirs"})
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TF_CONFIG", "JAX_PROCESS_ID"} & made.keys()
    assert (made["HYDRA_LAUNCHER"], made["A"], made["MASTER_ADDR"]) == ("ssh", "theirs", "job-0.job")


def served(mode: str, index: int, role: str, **changes: Any) -> dict[str, str]:
    meeting, serving = (("10.0.0.1", 5000), ("10.0.0.2", 5001)), (("10.0.0.8", 5008), ("fd00::9", 5009))
    place = replace(PLACE, index=index, rank=index, size=2, role=role, meeting=meeting, serving=serving)
    return environment(place=place, learners=2, distribution="parameter-server", servers=2, mode=mode, **changes)


def test_tensorflow_has_servers_of_its_own() -> None:
    """They run the command as the chief and the workers do, and are told what they are."""
    told = [json.loads(served("tensorflow", index, "parameter-server")["TF_CONFIG"]) for index in (0, 1)]
    cluster = {"chief": ["10.0.0.1:5000"], "worker": ["10.0.0.2:5001"], "ps": ["10.0.0.8:5008", "[fd00::9]:5009"]}
    assert told == [{"cluster": cluster, "task": {"type": "ps", "index": index}} for index in (0, 1)]
    made = served("tensorflow", 1, "learner")
    assert json.loads(made["TF_CONFIG"]) == {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    assert not {"LEARNER_ID", "RANK"} & served("tensorflow", 1, "parameter-server").keys()
    assert (made["LEARNER_ID"], made["RANK"]) == ("2", "1")


def test_mxnet_has_servers_of_its_own() -> None:
    """All meet at the scheduler, which is where the first server is."""
    wanted = {
        "DMLC_ROLE": "server",
        "DMLC_PS_ROOT_URI": "10.0.0.8",
        "DMLC_PS_ROOT_PORT": "5008",
        "DMLC_NUM_SERVER": "2",
        "DMLC_NUM_WORKER": "2",
    }
    made = served("mxnet", 1, "parameter-server")
    assert {name: made.get(name) for name in wanted} == wanted
    made = served("mxnet", 1, "learner")
    assert {name: made.get(name) for name in wanted} == wanted | {"DMLC_ROLE": "worker"}
    assert "TF_CONFIG" not in made
    assert not [name for name in served("sync", 1, "learner") if name.startswith("DMLC_")]
