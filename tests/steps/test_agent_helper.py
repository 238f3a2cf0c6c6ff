"""Agent and helper as real processes: what a training script and its user get from the two of them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

from ffdl.learner import contract
from tests.steps.pods import JOB_ID, TRAIN, WAIT, Job, expected_sum, until


def test_a_command_that_ends_well_completes_the_job(job: Job) -> None:
    """The whole point: the command ran once, its log is kept, both pods end with 0."""
    job.configure("echo hello from $LEARNER_ID; echo worse >&2")
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert job.log().splitlines() == ["hello from 1", "worse"]
    assert (job.shared / "job" / JOB_ID).exists()


def test_a_script_with_the_library_reports_and_checkpoints(job: Job) -> None:
    """Progress, loss and records are what a user watches a job by."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 600", checkpoint_interval=None, checkpoint_steps=100)
    helper, _ = job.helper(), job.agent()
    until(lambda: job.report().get("metrics", {}).get("loss"), "a loss in the report")
    seen = job.report()
    assert (seen["of"], seen["message"], seen["learners"]["joined"]) == (600, "training", 1)
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert f"sum {expected_sum(600)}" in job.log()
    assert job.report()["progress"] == "600/600"
    assert (job.folder / "pods/helper/progress").read_text() == "600/600\n"
    records = (job.shared / "job/logs/learner-1/evaluation-metrics.txt").read_text().splitlines()
    assert len(records) == 600
    last = json.loads(records[-1])
    assert last["meta"]["training_id"] == JOB_ID
    assert (last["meta"]["subid"], last["meta"]["rindex"]) == ("learner-1", 600)
    assert last["etimes"]["iteration"] == {"type": "INT", "value": "600"}
    assert last["values"]["loss"]["type"] == "FLOAT"


def test_killed_at_random_the_job_still_completes(job: Job) -> None:
    """Machines die at any moment: command, agent and helper, killed over and over, come to the same result."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    job.script("train.py", TRAIN + "\nopen('done', 'w').close()\n")
    command = f"echo $$ > ../pid; exec {sys.executable} train.py 500"
    job.configure(command, checkpoint_interval=None, checkpoint_steps=20)
    helper, agent = job.helper(), job.agent()
    for victim in [chance.choice(["command", "agent", "helper"]) for _ in range(8)]:
        print("killing the", victim)
        time.sleep(chance.uniform(0.2, 0.8))
        if victim == "command":
            with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
                os.kill(int(job.job_file("pid").read_text()), signal.SIGKILL)
        elif victim == "helper" and helper.poll() is None:
            helper.kill()
            helper.wait()
            helper = job.helper()
        elif victim == "agent" and agent.poll() is None:
            agent.kill()
            job.ended()
            # the pod's end takes its processes along
            with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
                os.killpg(int(job.job_file("pid").read_text()), signal.SIGKILL)
            agent = job.agent()
    for _ in range(20):
        if (code := job.ended()) == 0:
            break
        assert code == 75
        job.agent()
    assert code == 0
    assert helper.wait(WAIT) == 0
    assert f"sum {expected_sum(500)}" in job.log()


def test_nothing_of_the_command_is_left(job: Job) -> None:
    """A background process, also one that daemonised, would hold memory and GPUs, or write into stored results."""
    job.configure("sleep 1000 & echo $! > ../a; setsid sh -c 'sleep 1000 & echo $! > ../b; wait' & sleep 0.5; echo end")
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    for name in "ab":
        assert not os.path.exists(f"/proc/{int(job.job_file(name).read_text())}")


def test_strangers_have_no_effect(job: Job) -> None:
    """Anything may knock at an open port: a scan, garbage, a silent connection, a wrong token."""
    job.configure("while ! [ -e ../go ]; do sleep 0.05; done")
    helper, _ = job.helper(), job.agent()
    until(lambda: job.report().get("message") == "training", "training")
    address = (job.address()["host"], job.address()["port"])
    silent = socket.create_connection(address)
    for junk in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 200000, b"[" * 60000 + b"\n", b"{}\n", b'{"type":"done"}\n'):
        with socket.create_connection(address) as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(junk)
    join = {"type": "join", "token": "wrong", "role": "learner", "index": 0, "incarnation": "x", "attempt": 99}
    with socket.create_connection(address) as stranger:
        stranger.sendall(json.dumps(join).encode() + b"\n")
        stranger.settimeout(10)
        assert json.loads(stranger.makefile().readline())["type"] == contract.REFUSED
    job.job_file("go").touch()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    silent.close()


QUOTING = (
    """echo '{{workflow.name}} {{=1+1}} {{inputs.parameters.x}}' '$$' '$(HOME)' "it's" """
    """'say "hi"' 'é ü 漢字 🙂' '\\n' `echo t`"""
)


def test_the_command_reaches_the_shell_exactly(job: Job) -> None:
    """What a user writes is what runs, whatever templates and shells would like to make of it."""
    job.configure(QUOTING + '\nprintf "%s|" "$TRAINING_COMMAND"')
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    line, _, rest = job.log().partition("\n")
    assert line == r"""{{workflow.name}} {{=1+1}} {{inputs.parameters.x}} $$ $(HOME) it's say "hi" é ü 漢字 🙂 \n t"""
    assert rest == QUOTING + '\nprintf "%s|" "$TRAINING_COMMAND"|'


def test_a_script_longer_than_an_argument_may_be(job: Job) -> None:
    """A literal block may be any length; the kernel takes 128 KiB for one argument."""
    job.configure("echo first\n" + "true # padding\n" * 20000 + "echo last\n")
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert job.log() == "first\nlast\n"


def test_files_written_for_the_owner_only_can_be_stored(job: Job) -> None:
    """The steps that store results may have another uid than the script; a link must not widen what it points to."""
    secret = job.folder / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    job.configure(f"umask 077; mkdir $RESULT_DIR/d; echo x > $RESULT_DIR/d/model; ln -s {secret} $RESULT_DIR/link")
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    results = job.shared / "mnt/results/dlaas-trained-models" / JOB_ID
    assert (results / "d").stat().st_mode & 0o777 == 0o755
    assert (results / "d/model").stat().st_mode & 0o777 == 0o644
    assert secret.stat().st_mode & 0o777 == 0o600


def test_learners_find_each_other(job: Job) -> None:
    """Frameworks meet at MASTER_ADDR:MASTER_PORT; without a name that resolves it is an address."""
    job.configure('echo "$MASTER_ADDR $MASTER_PORT $RANK/$WORLD_SIZE $NUM_LEARNERS"', learners=2)
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    assert [job.ended(index) for index in range(2)] == [0, 0]
    assert helper.wait(WAIT) == 0
    (address, port, place, count), second = job.log(0).split(), job.log(1).split()
    assert (address, place, count) == ("127.0.0.1", "0/2", "2")
    assert second == [address, port, "1/2", "2"]
    assert 1024 < int(port) < 65536


def test_learners_on_their_own_have_checkpoints_of_their_own(job: Job) -> None:
    """Several independent runs of one script must not restore each other's state."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py $((100 * LEARNER_ID))", learners=2, checkpoint_steps=50)
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    assert [job.ended(index) for index in range(2)] == [0, 0]
    assert helper.wait(WAIT) == 0
    assert [f"sum {expected_sum(100 * (i + 1))}" in job.log(i) for i in range(2)] == [True, True]
    assert sorted(path.name for path in job.job_file("checkpoints").iterdir()) == ["learner-1", "learner-2"]


def test_printed_metrics_are_found(job: Job) -> None:
    """A script that only prints its loss has a loss curve and a progress all the same."""
    group = {
        "regex": r"step %{INT:step} loss %{FLOAT:loss}",
        "etimes": {"iteration": {"type": "INT", "value": "$step"}},
        "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
    }
    metrics = {"type": "regex_extractor", "groups": {"train": group}}
    job.configure('for i in 1 2 3; do echo "step $i loss 0.$i"; done; printf "step 4 loss 0.4"', metrics=metrics)
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    lines = (job.shared / "job/logs/learner-1/evaluation-metrics.txt").read_text().splitlines()
    assert [json.loads(line)["values"]["loss"]["value"] for line in lines] == ["0.1", "0.2", "0.3", "0.4"]


def test_the_helper_is_small(job: Job) -> None:
    """Every job has one, for all of its life."""
    job.configure("exec sleep 1000")
    helper, _ = job.helper(), job.agent()
    until(lambda: job.report().get("message") == "training", "training")
    lines = Path(f"/proc/{helper.pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
    print(sizes["Pss:"], "KiB")
    assert sizes["Pss:"] < 24 * 1024
