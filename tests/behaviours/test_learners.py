"""Several learners side by side: who they are, how they find each other, when the job is over, what disturbs whom."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours.conftest import Visit
from tests.behaviours.user import GATED, User

MEET = """
import json, os, socket, time, zlib

prefix, size = os.environ["LEARNER_NAME_PREFIX"], int(os.environ["NUM_LEARNERS"])
rank = int(os.environ["LEARNER_ID"]) - 1
names = [f"{prefix}-{index}.{prefix}" for index in range(size)]
# the same port on all, as on machines of their own; another home's job, of tests beside these, may have their addresses
port = 10000 + zlib.crc32(os.environ["TRAINING_ID"].encode()) % 10000
server = socket.create_server((names[rank], port))


def call(name):
    for _ in range(2400):
        try:
            with socket.create_connection((name, port), 5) as peer:
                peer.settimeout(60)  # who called twice would be answered in another's place
                return peer.makefile().readline().strip()
        except OSError:
            time.sleep(0.05)
    return "nobody"


def answer():
    with server.accept()[0] as peer:
        peer.sendall(f"learner {rank}\\n".encode())


import threading
threads = [threading.Thread(target=answer) for _ in names]
for thread in threads:
    thread.start()
answers = [call(name) for name in names]
for thread in threads:
    thread.join()
about = {"environment": dict(os.environ), "addresses": [socket.gethostbyname(name) for name in names]}
about |= {"answers": answers, "hostname": socket.gethostname(), "cwd": os.getcwd()}
with open(f"{os.environ['RESULT_DIR']}/about-{rank}.json", "w") as stream:
    json.dump(about, stream)
"""


@pytest.mark.smoke
def test_each_knows_who_it_is_and_finds_the_others(user: User) -> None:
    """What FfDL's distributed examples rely on: names that resolve, ports of one's own, who is the master."""
    job = user.train(user.script(MEET, learners=3, cpus=0.2, completion="all"))
    assert user.until_over(job).state == "COMPLETED", user.story()
    abouts = [json.loads((user.results(job) / f"about-{rank}.json").read_text()) for rank in range(3)]
    environments = [about["environment"] for about in abouts]
    addresses = abouts[0]["addresses"]
    assert all(about["addresses"] == addresses for about in abouts)
    assert len(set(addresses)) == 3
    at_home = user.engine_name == "local"
    assert all(ipaddress.ip_address(address).is_loopback == at_home for address in addresses)
    assert all(about["answers"] == ["learner 0", "learner 1", "learner 2"] for about in abouts)
    assert [about["hostname"] for about in abouts] == [f"{job}-{rank}" for rank in range(3)]
    assert [each["LEARNER_ID"] for each in environments] == ["1", "2", "3"]
    assert [each["RANK"] for each in environments] == ["0", "1", "2"]
    together = {
        "NUM_LEARNERS": "3", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LEARNER_NAME_PREFIX": job, "TRAINING_ID": job,
        "MASTER_ADDR": f"{job}-0.{job}", "GPU_COUNT": "0.000000", "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1", "MODEL_DIR": "/job/model-code", "LOG_DIR": "/job/logs", "JOB_STATE_DIR": "/job",
        "CHECKPOINT_DIR": "/job/checkpoints", "RESULT_DIR": f"/mnt/results/dlaas-trained-models/{job}",
        "TRAINING_COMMAND": "python script.py",
    }  # fmt: skip
    for each in environments:
        assert {name: each.get(name) for name in together} == together
        assert int(each["MASTER_PORT"]) > 1023
        assert not [name for name in each if name.startswith(("KUBERNETES", "FFDL_HOME", "ARGO_"))]
    assert len({each["MASTER_PORT"] for each in environments}) == 1
    assert all(about["cwd"] == "/job/model-code" for about in abouts)


def test_they_meet_in_a_file_of_the_shared_folder(user: User) -> None:
    """The rendezvous of FfDL's PyTorch examples, file:///job/$TRAINING_ID: one folder, one file, all write to it."""
    script = '[ -f "/job/$TRAINING_ID" ] && echo "$LEARNER_ID" >> "/job/$TRAINING_ID"'
    script += '; until [ "$(sort -u "/job/$TRAINING_ID" | wc -l)" = "$NUM_LEARNERS" ]; do sleep 0.05; done'
    script += '; sort -u "/job/$TRAINING_ID" > "$RESULT_DIR/met-$LEARNER_ID"'
    job = user.train(user.command(script, learners=4, cpus=0.2, completion="all"))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert [(user.results(job) / f"met-{n}").read_text().split() for n in range(1, 5)] == [["1", "2", "3", "4"]] * 4


def test_threads_follow_the_cpus_asked_for(user: User) -> None:
    """A learner with a CPU and a half computes with two threads, not with as many as the machine has."""
    job = user.train(
        user.command('env | grep "_NUM_THREADS=[0-9]" > "$RESULT_DIR/threads"', cpus=1.5, env={"MKL_NUM_THREADS": "7"})
    )
    assert user.until_over(job).state == "COMPLETED", user.story()
    threads = dict(line.split("=") for line in (user.results(job) / "threads").read_text().split())
    assert threads["OMP_NUM_THREADS"] == threads["OPENBLAS_NUM_THREADS"] == "2"
    assert threads["MKL_NUM_THREADS"] == "7", "what the user writes counts"


def test_files_of_the_code_can_be_run(user: User) -> None:
    """Zips made by Python and by Windows lose the x bit; FfDL's examples run ./launcher.py all the same."""
    folder = user.command("./tool.sh")
    (folder / "tool.sh").write_text('#!/bin/sh\necho ran > "$RESULT_DIR/said"\n')
    (folder / "tool.sh").chmod(0o644)
    job = user.train(folder)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (user.results(job) / "said").read_text() == "ran\n"


def test_a_learner_without_gpus_sees_none(user: User) -> None:
    """A CPU job must not wander onto a GPU that another job leases."""
    user.env["FFDL_MACHINE"] = "cpus=4,memory=8GiB,gpus=1"
    job = user.train(user.command('echo "[$CUDA_VISIBLE_DEVICES]" > "$RESULT_DIR/gpus"'))
    assert user.until_over(job).state == "COMPLETED"
    assert (user.results(job) / "gpus").read_text() == "[]\n"


# --- when the job is over ---------------------------------------------------------------------------------------------


def test_ffdl_jobs_end_with_their_first_learner(user: User) -> None:
    """FfDL's examples park all learners but one, or never end their parameter server: the first to end ends the job."""
    sleepers = 'if [ "$LEARNER_ID" != 1 ]; then sleep infinity; fi; echo "$LEARNER_ID" > "$RESULT_DIR/ended"'
    server = 'if [ "$LEARNER_ID" = 1 ]; then sleep infinity; fi; echo "$LEARNER_ID" > "$RESULT_DIR/ended"'
    ends = {}
    for name, script, last in (("sleepers", sleepers, "1"), ("server", server, "2")):
        ends[user.train(user.command(script, name, learners=2, cpus=0.3))] = last
    for job, last in ends.items():
        assert user.until_over(job).state == "COMPLETED", user.story()
        assert (user.results(job) / "ended").read_text() == f"{last}\n"


def test_the_master_decides_where_it_is_to(user: User) -> None:
    """`completion: master`: another learner that ends first ends nothing, one that never ends holds nothing up."""
    script = """
    case "$LEARNER_ID" in
    1) until [ -e /job/second ]; do sleep 0.05; done; sleep 0.5; echo master > "$RESULT_DIR/ended";;
    2) touch /job/second;;
    3) sleep infinity;;
    esac
    """
    job = user.train(user.command(textwrap.dedent(script), learners=3, cpus=0.2, completion="master"))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (user.results(job) / "ended").read_text() == "master\n"


def test_all_are_waited_for_where_all_count(user: User) -> None:
    """`completion: all`: a sweep of independent runs is over when the slowest is."""
    script = 'until [ "$LEARNER_ID" = 1 ] || [ -e /job/$((LEARNER_ID-1)) ]; do sleep 0.05; done; sleep 0.3'
    script += '; touch /job/$LEARNER_ID "$RESULT_DIR/ended-$LEARNER_ID"'
    job = user.train(user.command(script, learners=3, cpus=0.2, completion="all"))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert all((user.results(job) / f"ended-{n}").exists() for n in (1, 2, 3))


def test_one_that_fails_ends_the_job(user: User) -> None:
    """Two of three models are no result of a job that wants three: the rest is stopped, and it says who failed."""
    script = 'if [ "$LEARNER_ID" = 2 ]; then exit 5; fi; sleep infinity'
    job = user.train(user.command(script, learners=3, cpus=0.2, completion="all", halt_grace="5s"))
    status = user.until_over(job)
    assert (status.state, status.reason, status.exit_code) == ("FAILED", "learner 2 exited with code 5", 5), (
        user.story()
    )


# --- disturbances -----------------------------------------------------------------------------------------------------


def three(user: User, **env: str) -> Path:
    """Three learners that train models of their own."""
    folder = user.job(learners=3, completion="all", env={"STEPS": "40", **env})
    script = (folder / "train.py").read_text()
    ours = script.replace("default_rng(1)", 'default_rng(int(os.environ["LEARNER_ID"]))')
    ours = ours.replace('"model.npy"', "f\"model-{os.environ['LEARNER_ID']}.npy\"")
    assert ours.count("LEARNER_ID") == 2
    (folder / "train.py").write_text(ours)
    return folder


def models(user: User, job: str) -> list[bytes]:
    return [(user.results(job) / f"model-{n}.npy").read_bytes() for n in (1, 2, 3)]


@pytest.fixture(scope="module")
def three_models(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Those of a run that nobody disturbed."""
    with visit(tmp_path_factory.mktemp("three")) as someone:
        job = someone.train(three(someone))
        assert someone.until_over(job).state == "COMPLETED", someone.story()
        found = models(someone, job)
    assert len(set(found)) == 3
    return found


def learners(user: User) -> Iterator[tuple[str, int]]:
    """LEARNER_ID and pid of each training script that runs."""
    for pid in user.pids("learner"):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for entry in environment:
            name, _, value = entry.partition(b"=")
            if name == b"LEARNER_ID":
                yield value.decode(), pid


def until_each_is_at(user: User, job: str, step: int) -> None:
    def at() -> bool:
        steps = {f"learner-{n}": 0 for n in (1, 2, 3)}
        for record in user.engine.metrics(job):
            steps[record["meta"]["subid"]] = int(record["etimes"]["iteration"]["value"])
        return min(steps.values()) >= step

    user.wait_for(at, f"step {step} of each")


@pytest.mark.parametrize("victim", ["learner", "supervisor"])
def test_one_of_three_is_killed(user: User, three_models: list[bytes], victim: str) -> None:
    """What dies starts again where it was; the others don't notice, and all three models are as they should be."""
    job = user.train(three(user, **GATED))
    until_each_is_at(user, job, 15)
    before = dict(learners(user))
    assert sorted(before) == ["1", "2", "3"]
    if victim == "learner":
        os.kill(before["2"], signal.SIGKILL)
    else:
        supervisors, at = user.pids("supervisor"), before["2"]
        while at not in supervisors:
            at = int(Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(at, signal.SIGKILL)
    user.wait_for(lambda: dict(learners(user)).get("2", before["2"]) != before["2"], "another attempt")
    now = dict(learners(user))
    assert {n: pid for n, pid in now.items() if n != "2"}.items() <= before.items(), "the others were not touched"
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == three_models


def test_three_halt_and_resume_together(user: User, three_models: list[bytes]) -> None:
    """A halt is a halt of all, each at a step of its own; none mixes up its checkpoint with another's."""
    job = user.train(three(user, **GATED))
    for step in (8, 25):
        until_each_is_at(user, job, step)
        user.ffdl("halt", job)
        assert user.ffdl("status", job).stdout.strip() == "HALTED"
        user.until_at_rest()
        user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert models(user, job) == three_models
    said = user.ffdl("logs", job, "--learner", "3").stdout
    assert said.count("restored at") == 3
    assert said.count("restored at None") == 1


# --- PyTorch ----------------------------------------------------------------------------------------------------------

TORCH = "/usr/bin/python3"
GLOO = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which the job sets
number = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(number)
with open(f"{os.environ['RESULT_DIR']}/sum-{dist.get_rank()}", "w") as stream:
    stream.write(str(number.item()))
dist.destroy_process_group()
"""


def has_torch(user: User) -> bool:
    if user.engine_name != "local":
        return user.has_image("ffdl-learner-pytorch")
    return os.path.exists(TORCH) and not subprocess.run([TORCH, "-c", "import torch"], capture_output=True).returncode


@pytest.mark.smoke
def test_pytorch_learners_find_each_other(user: User) -> None:
    """init_process_group() needs no arguments: what torchrun would set is set."""
    if not has_torch(user):
        pytest.skip("needs PyTorch: here in /usr/bin/python3 (apt install python3-torch), on a cluster the image")
    framework = {"name": "pytorch", "version": "latest", "command": "python script.py"}
    if user.engine_name != "local":
        framework |= {"name": "custom", "version": "ffdl-learner-pytorch"}
    folder = user.job(framework=framework, learners=2, cpus=0.4, memory="2GB", completion="all")
    (folder / "script.py").write_text(GLOO)
    job = user.train(folder, *(["--python", TORCH] if user.engine_name == "local" else []))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert [(user.results(job) / f"sum-{rank}").read_text() for rank in (0, 1)] == ["3.0", "3.0"]
