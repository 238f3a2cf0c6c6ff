"""Jobs whose command is run once, by learner 1, and starts processes in all of them as MPI's launchers do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.behaviours.conftest import Visit
from tests.behaviours.user import GATED, User

TRAIN = Path(__file__).parent / "mpi" / "train.py"
PYTHON = "/usr/bin/python3"
DISTRIBUTION = {"kind": "mpi"}

LAUNCHER = """
import os, subprocess, sys

# as a launcher of MPI does: it asks for a process on each host of the host file, and ends with the first that fails
hosts = [line.split()[0] for line in open(os.environ["OMPI_MCA_orte_default_hostfile"])]
start = os.environ["OMPI_MCA_plm_rsh_agent"]
processes = [subprocess.Popen([start, "-x", host, f"python worker.py {rank}"]) for rank, host in enumerate(hosts)]
while processes:
    pid, status = os.wait()
    if status:
        print("a process has ended with", os.waitstatus_to_exitcode(status), flush=True)
        for process in processes:
            process.terminate()
        sys.exit(os.waitstatus_to_exitcode(status))
    processes = [process for process in processes if process.pid != pid]
"""

WORKER = r"""
import os, socket, sys, time

rank, own = sys.argv[1], os.environ
where = f"at {socket.gethostname()} learner {own['LEARNER_ID']} {'RANK' in own}"
os.write(1, f"process {rank} {where}\n".encode())
os.write(2, b"an error is told\n")
if rank == own.get("FAILS"):
    sys.exit(3)
at = os.path.join(own["CHECKPOINT_DIR"], rank)
with open(at, "a") as stream:
    stream.write("x")
while not os.path.exists(os.path.join(own["JOB_STATE_DIR"], "gate")):
    time.sleep(0.05)
with open(os.path.join(own["RESULT_DIR"], f"by-{rank}"), "w") as stream:
    stream.write(open(at).read())
"""


def launched(user: User, **env: str) -> Path:
    folder = user.job(learners=3, cpus=0.2, distribution=DISTRIBUTION, env=env)
    (folder / "train.py").write_text(LAUNCHER)
    (folder / "worker.py").write_text(WORKER)
    return folder


def workers(user: User) -> list[int]:
    """The processes that a launcher has started; not what it has started them by."""
    found = user.processes().items()
    return [pid for pid, said in found if said.startswith("python") and " worker.py " in said and "remote" not in said]


def started(user: User, job: str) -> list[int]:
    """How often the process of each rank has begun."""
    files = [user.volume(job) / "job" / "checkpoints" / str(rank) for rank in range(3)]
    return [len(path.read_text()) if path.exists() else 0 for path in files]


def test_the_command_of_learner_1_starts_processes_in_all(user: User) -> None:
    """`mpirun` needs no sshd, no keys and no list of hosts of the user's own."""
    job = user.train(launched(user))
    user.wait_for(lambda: started(user, job) == [1] * 3, "all processes")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    said = user.ffdl("logs", job, "--learner", "1").stdout
    for rank in range(3):
        assert f"process {rank} at {job}-{rank} learner {rank + 1} False" in said
    assert said.count("an error is told") == 3
    assert [(user.results(job) / f"by-{rank}").read_text() for rank in range(3)] == ["x"] * 3


@pytest.mark.parametrize("victim", ["launcher", "agent", "helper"])
def test_all_processes_begin_anew_when_one_of_the_job_s_is_lost(user: User, victim: str) -> None:
    """One that is lost leaves the others of its MPI world with nothing to go on with."""
    job = user.train(launched(user))
    user.wait_for(lambda: started(user, job) == [1] * 3, "all processes")
    if victim == "launcher":
        os.kill(max(user.pids("learner")), signal.SIGKILL)
    else:
        assert user.kill(victim), user.story()
    if victim != "helper":
        user.wait_for(lambda: started(user, job) == [2] * 3, "all processes again")
    user.wait_for(lambda: len(workers(user)) == 3, "three processes")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    times = "x" if victim == "helper" else "xx"
    assert [(user.results(job) / f"by-{rank}").read_text() for rank in range(3)] == [times] * 3


def test_the_exit_code_of_the_command_is_the_job_s(user: User) -> None:
    """Whatever a launcher makes of its processes' ends, only learner 1 has a command."""
    job = user.train(launched(user, FAILS="1"))
    assert user.failed(job) == "learner 1 exited with code 3"


def test_halted_and_resumed(user: User) -> None:
    """All pods end, and all processes are started again."""
    job = user.train(launched(user))
    user.wait_for(lambda: started(user, job) == [1] * 3, "all processes")
    user.ffdl("halt", job)
    assert user.ffdl("status", job).stdout.strip() == "HALTED"
    user.ffdl("resume", job)
    user.wait_for(lambda: started(user, job) == [2] * 3, "all processes again")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()


def test_the_library_s_worlds_are_not_mpi_s(user: User) -> None:
    """A script that waits for another world would wait for ever: one line says so."""
    folder = launched(user)
    (folder / "train.py").write_text("from ffdl import learner\n\nlearner.run(print)\n")
    job = user.train(folder)
    assert user.failed(job) == "learner 1 exited with code 1"
    assert "ffdl: learner.run is not for distribution.kind mpi" in user.ffdl("logs", job).stdout


# --- the real one -----------------------------------------------------------------------------------------------------


def has_mpi(user: User) -> bool:
    if user.engine_name != "local" or not shutil.which("mpirun"):
        return False
    return subprocess.run([PYTHON, "-c", "import mpi4py, numpy"], capture_output=True).returncode == 0


@pytest.fixture
def _mpi(user: User) -> None:
    if not has_mpi(user):
        pytest.skip("needs Open MPI and mpi4py (apt install openmpi-bin python3-mpi4py python3-numpy)")


def trained(user: User, command: str, *arguments: str, **keys: object) -> str:
    keys = {"distribution": DISTRIBUTION, "env": GATED, **keys}
    folder = user.command(command, learners=2, cpus=0.4, memory="2GB", **keys)
    shutil.copy(TRAIN, folder / "train.py")
    return user.train(folder, *arguments)


def models(user: User, job: str, ranks: int = 2) -> list[bytes]:
    return [(user.results(job) / f"model-{rank}.npy").read_bytes() for rank in range(ranks)]


@pytest.fixture(scope="module")
def undisturbed(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nobody disturbed: the same at both."""
    with visit(tmp_path_factory.mktemp("mpi")) as someone:
        if not has_mpi(someone):
            return b""
        job = trained(someone, f"mpirun {PYTHON} train.py", env={})
        assert someone.until_over(job).state == "COMPLETED", someone.story()
        said = someone.ffdl("logs", job, "--learner", "1").stdout
        assert f"process 0 of 2 on {job}-0, learner 1, begins at 0" in said
        assert f"process 1 of 2 on {job}-1, learner 2, begins at 0" in said
        first, second = models(someone, job)
        assert first == second
        return first


def ranks(user: User) -> list[int]:
    """Processes of Python that MPI has started, the last ones last."""
    return sorted(pid for pid, said in user.processes().items() if f": {PYTHON} train.py" in said)


def index(pid: int) -> str:
    """Of the learner whose pod a process is in."""
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(
        (entry[-1:].decode() for entry in environment if entry.startswith((b"FFDL_INDEX=", b"LEARNER_ID="))), ""
    )


@pytest.mark.usefixtures("_mpi")
@pytest.mark.parametrize("victim", ["rank", "agent", "daemon"])
def test_mpi_trains_the_same_model_whoever_is_killed(user: User, undisturbed: bytes, victim: str) -> None:
    """A process in the other learner's pod, that pod's agent, MPI's own daemon there."""
    job = trained(user, f"mpirun {PYTHON} train.py")
    log = lambda: user.ffdl("logs", job, "--learner", "1").stdout  # noqa: E731
    user.wait_for(lambda: "step 45" in log(), "step 45")
    if victim == "agent":
        (one,) = [pid for pid in user.pids("agent") if index(pid) == "1"]
    elif victim == "daemon":
        (one,) = [pid for pid, said in user.processes().items() if said.startswith("orted")]
    else:
        (one,) = [pid for pid in ranks(user) if index(pid) == "2"]
    os.kill(one, signal.SIGKILL)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 2
    assert log().count("process 1 of 2") == 2


@pytest.mark.usefixtures("_mpi")
def test_a_manifest_of_ffdl_s_with_horovod_needs_no_more(user: User, undisturbed: bytes) -> None:
    """FfDL had the command of these frameworks started in all learners by an mpirun of its own."""
    framework = {"name": "pytorchmpi", "version": "latest", "command": "python train.py"}
    folder = user.job(framework=framework, learners=2, cpus=0.4, memory="2GB")
    shutil.copy(TRAIN, folder / "train.py")
    job = user.train(folder, "--python", PYTHON)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == [undisturbed] * 2


@pytest.mark.usefixtures("_mpi")
def test_a_process_for_each_gpu(user: User) -> None:
    """Host file and launcher know how many a learner has room for."""
    user.env["FFDL_MACHINE"] += ",gpus=4"
    distribution = {"kind": "mpi", "processes": "per-gpu"}
    job = trained(user, f"{PYTHON} train.py", gpus=2, distribution=distribution, env={})
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert len(set(models(user, job, 4))) == 1
    said = user.ffdl("logs", job, "--learner", "1").stdout
    assert [f"process {rank} of 4 on {job}-{rank // 2}" in said for rank in range(4)] == [True] * 4
