"""What a pod runs: the user's command, or something of ours around it or in its place."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from ffdl.learner import contract
from ffdl.steps import mpi
from ffdl.steps.program import program

PYTHON = "/ffdl/agent/python"


def of(index: int = 0, role: str = contract.LEARNER, **changes: Any) -> str:
    values: dict[str, Any] = {"name": "n", "command": "python train.py", "framework": "f", "framework_version": "v"}
    values |= {"learners": 3, "cpus": 1.0, "gpus": 2.0, "memory": 1, "results": None}
    return program(contract.JobSpec(**(values | changes)), role, index, PYTHON)


def test_a_command_reaches_the_shell_as_it_is() -> None:
    """Whatever its author has quoted."""
    assert of(command="echo '$A' \\\n | cat") == "echo '$A' \\\n | cat"
    assert of(distribution="peer", processes="one") == "python train.py"


def test_with_mpi_learner_1_alone_runs_it() -> None:
    """As it is, or by an mpirun of ours."""
    assert of(distribution="mpi") == "python train.py"
    assert of(1, distribution="mpi") == f"exec {PYTHON} -m ffdl.steps.remote_server"
    assert shlex.split(of(distribution="mpi", processes="per-gpu"))[:6] == ["exec", "mpirun", "-np", "6", "$0", "-c"]
    assert shlex.split(of(distribution="mpi", processes="one"))[3] == "3"


def test_servers_run_what_is_theirs() -> None:
    """Ours, the framework's, or that and MXNet's scheduler beside the first of them."""
    server = {"role": contract.PARAMETER_SERVER, "distribution": "parameter-server", "servers": 2}
    assert of(mode="sync", **server).endswith("-m ffdl.learner.serving")
    assert of(mode="tensorflow", **server) == of(1, mode="mxnet", **server) == "python train.py"
    assert " -m ffdl.steps.processes server,scheduler " in of(mode="mxnet", **server)


@pytest.mark.parametrize(
    ("learners", "hosts"), [(1, ["job-0 slots=2"]), (2, ["job-0.job slots=2", "job-1.job slots=2"])]
)
def test_host_files_name_all_and_how_many_processes_each_takes(learners: int, hosts: list[str], tmp_path: Path) -> None:
    """Open MPI's words and those of MPICH and Intel MPI."""
    mpi.write(str(tmp_path), mpi.host_names("job", learners), 2, PYTHON)
    told = mpi.environment(str(tmp_path), 2)
    assert Path(told["OMPI_MCA_orte_default_hostfile"]).read_text().splitlines() == hosts
    colons = [host.replace(" slots=", ":") for host in hosts]
    assert Path(told["HYDRA_HOST_FILE"]).read_text().splitlines() == colons
    assert f"exec {PYTHON} -m ffdl.steps.remote_client" in Path(told["HYDRA_LAUNCHER_EXEC"]).read_text()


def test_the_interface_that_others_reach() -> None:
    """A pod's host name means nothing in other pods."""
    assert mpi.interface_with("127.0.0.1") == "lo"
    assert [mpi.interface_with(address) for address in ("", "127.9.9.9", "fe80::1")] == ["", "", ""]
