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
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_halts_at_random_moments_lose_nothing(job: Job) -> None:
    """A halted and resumed run computes what an undisturbed one does."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 400")
    helper, _ = job.helper(), job.agent()
    for number in range(3):
        until(lambda: job.log().count("from ") > number, "the start")  # noqa: B023 - called at once
        assert not (job.shared / "ffdl/helper/halted").exists()  # a stale one would halt whoever loses the helper
        time.sleep(chance.uniform(0.0, 0.9))
        job.suspend()
        assert job.ended() == 75
        assert helper.wait(WAIT) == 75
        assert (job.shared / "ffdl/helper/halted").exists()
        job.suspend(False)
        helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert not (job.shared / "ffdl/helper/halted").exists()
    assert f"sum {expected_sum(400)}" in job.log()
    assert job.log().count("halted at step") == 3


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


def test_halt_and_the_helper_killed_in_the_same_second(job: Job) -> None:
    """The marker and the next helper finish a halt that a dying helper began; nobody trains on in a halted job."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 100000")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    job.suspend()
    until(lambda: (job.shared / "ffdl/helper/halted").exists(), "the marker")
    helper.kill()
    helper.wait()
    assert job.ended() == 75
    assert job.helper().wait(WAIT) == 75
    assert (job.shared / "ffdl/helper/halted").exists()


def test_suspended_before_any_learner_came(job: Job) -> None:
    """Halting during the download leaves no helper behind, and none blocks the resume."""
    job.configure("true")
    helper = job.helper()
    until(job.address, "the address")
    job.suspend()
    assert helper.wait(WAIT) == 75
    assert job.helper().wait(WAIT) == 75
    job.suspend(False)
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0


def test_halted_and_resumed_within_a_second(job: Job) -> None:
    """Whoever changes their mind at once is not stuck: a begun halt is finished, its marker gone."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 300")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    for _ in range(3):
        job.suspend()
        time.sleep(0.1)
        job.suspend(False)
        time.sleep(0.1)
    code = helper.wait(WAIT)
    assert code in (0, 75)
    if code == 75:
        assert job.ended() == 75
        helper, _ = job.helper(), job.agent()
        assert helper.wait(WAIT) == 0
    assert job.ended() == 0
    assert not (job.shared / "ffdl/helper/halted").exists()


@pytest.mark.parametrize(
    ("command", "attempts", "code", "reason"),
    [
        ("exit 3", 0, 3, "learner 1 exited with code 3"),
        ("exit 70", 0, 70, "learner 1 exited with code 70"),
        ("exit 64", 0, 64, "learner 1 exited with code 64"),
        ("no-such-command-at-all", 0, 127, "learner 1 exited with code 127"),
        ("kill -SEGV $$", 0, 139, "learner 1 exited with code 139"),
        ("exit 3", 2, 70, "learner 1 exited with code 3, after 2 restarts"),
        ("exit 70", 1, 70, "learner 1 exited with code 70, after 1 restart"),
    ],
)
def test_exit_codes(job: Job, command: str, attempts: int, code: int, reason: str) -> None:
    """The user's own code ends the job and is shown; restarts are granted as often as the manifest says."""
    job.configure(command, retry_attempts=attempts)
    helper = job.helper()
    for attempt in range(attempts + 1):
        job.agent()
        ended = job.ended()
        if attempt < attempts:
            assert ended == (75 if "70" in command else 3)
    assert ended == code
    assert helper.wait(WAIT) == 0
    assert job.reasons() == [reason]


def test_75_for_ever_ends_with_a_reason(job: Job) -> None:
    """A script that always asks to be started again would burn GPUs for ever."""
    job.configure("exit 75")
    helper = job.helper()
    codes = []
    for _ in range(6):
        job.agent()
        codes.append(job.ended())
    assert codes == [75] * 5 + [70]
    assert helper.wait(WAIT) == 0
    assert "asked to be started again 6 times" in job.reasons()[0]


def test_75_with_progress_goes_on(job: Job) -> None:
    """A script that saves something each time and asks for more is doing its work in portions."""
    count = "n=$(ls $CHECKPOINT_DIR | wc -l); echo $n > $CHECKPOINT_DIR/$n; [ $n -ge 7 ] && exit 0; exit 75"
    job.configure(count)
    helper = job.helper()
    codes = []
    for _ in range(8):
        job.agent()
        codes.append(job.ended())
    assert codes == [75] * 7 + [0]
    assert helper.wait(WAIT) == 0


@pytest.mark.parametrize("death", ["kill -9 $$", "sh -c 'kill -9 $$'; exit $?", "kill -TERM $$", "exit 137"])
def test_a_killed_command_is_started_again_in_place(job: Job, death: str) -> None:
    """A process that something outside killed is no failure of the user's."""
    job.configure(f"if [ -e ../once ]; then echo twice; else touch ../once; {death}; fi")
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert job.log().endswith("twice\n")
    assert "started again" in job.log()


def test_nothing_of_the_command_is_left(job: Job) -> None:
    """A background process, also one that daemonised, would hold memory and GPUs, or write into stored results."""
    job.configure("sleep 1000 & echo $! > ../a; setsid sh -c 'sleep 1000 & echo $! > ../b; wait' & sleep 0.5; echo end")
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    for name in "ab":
        assert not os.path.exists(f"/proc/{int(job.job_file(name).read_text())}")


def test_the_first_done_completes(job: Job) -> None:
    """FfDL's jobs whose other learners sleep for ever end when the one that works is done."""
    job.configure('if [ "$LEARNER_ID" = 2 ]; then echo done; else exec sleep 1000; fi', learners=2, completion="first")
    job.constants["coordinator.FIRST_GRACE"] = 0
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    assert job.ended(1) == 0
    assert job.ended(0) == 0
    assert helper.wait(WAIT) == 0


def test_the_master_completes(job: Job) -> None:
    """With `completion: master` learner 1 decides, whoever ends before."""
    command = "case $LEARNER_ID in 1) while ! [ -e ../go ]; do sleep 0.1; done;; 3) exec sleep 1000;; esac"
    job.configure(command, learners=3, completion="master")
    helper = job.helper()
    for index in range(3):
        job.agent(index)
    assert job.ended(1) == 0
    assert helper.poll() is None
    job.job_file("go").touch()
    assert [job.ended(0), job.ended(2)] == [0, 0]
    assert helper.wait(WAIT) == 0


def test_one_failure_ends_the_others(job: Job) -> None:
    """GPUs of a job that has failed are not to be held by its other learners."""
    job.configure('[ "$LEARNER_ID" = 1 ] && exit 3; exec sleep 1000', learners=2)
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    assert [job.ended(0), job.ended(1)] == [3, 70]
    assert helper.wait(WAIT) == 0
    assert job.reasons() == ["learner 1 exited with code 3"]


def test_a_finished_learner_that_starts_again_ends_at_once(job: Job) -> None:
    """An exit code that got lost on the way (a drained node) must not run a finished training again."""
    job.configure('echo run; [ "$LEARNER_ID" = 1 ] || exec sleep 1000', learners=2)
    helper = job.helper()
    for index in range(2):
        job.agent(index)
    assert job.ended(0) == 0
    job.agent(0)
    assert job.ended(0) == 0
    helper.kill()
    helper.wait()
    helper = job.helper()
    job.agent(0)
    assert job.ended(0) == 0
    assert job.log(0) == "run\n"
    job.annotate(contract.ANNOTATION_STOP, "now")
    assert job.ended(1) == 70
    assert helper.wait(WAIT) == 0
    job.agent(1)  # comes when the helper is gone
    assert job.ended(1) == 70


def test_stop_ends_the_job_by_protocol(job: Job) -> None:
    """`ffdl stop`: the learners end, the reason is there, results can be stored."""
    job.configure("exec sleep 1000")
    helper, _ = job.helper(), job.agent()
    until(lambda: job.report().get("message") == "training", "training")
    job.annotate(contract.ANNOTATION_STOP, "now")
    assert job.ended() == 70
    assert helper.wait(WAIT) == 0
    assert job.reasons() == ["stopped"]


def test_a_failed_download_ends_the_helper(job: Job) -> None:
    """Without it the job would wait for ever for learners that never come."""
    job.configure("true")
    failures = job.shared / "ffdl/journal/failures"
    failures.mkdir()
    (failures / "download.json").write_text(json.dumps({"reason": "bucket b is not there", "at": 1}))
    helper = job.helper()
    until(job.address, "the address")
    job.fail_step("download")
    assert helper.wait(WAIT) == 0
    assert job.reasons() == ["download failed: bucket b is not there"]


def test_a_plain_script_gets_a_signal_and_time(job: Job) -> None:
    """A script that knows nothing of us can save on SIGTERM; what it does after counts as halted, not as done."""
    job.configure("trap 'echo saved > $CHECKPOINT_DIR/own; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    helper, _ = job.helper(), job.agent()
    until(lambda: "up" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75
    assert job.job_file("checkpoints/own").read_text() == "saved\n"


def test_a_script_that_ignores_the_signal_is_killed(job: Job) -> None:
    """A halt frees the GPUs within halt_grace whatever the script does."""
    job.configure("trap '' TERM; echo up; while :; do sleep 0.1; done", halt_grace=1.0)
    helper, _ = job.helper(), job.agent()
    until(lambda: "up" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75


def test_a_shell_that_goes_on_after_its_script_halted_is_not_done(job: Job) -> None:
    """`python a.py; echo x` ends with 0 although the training was cut short."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 100000; echo x")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75


def test_sigterm_to_the_agent_is_a_halt_of_its_pod(job: Job) -> None:
    """A drained node costs no more than the step that was under way."""
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 200")
    helper, agent = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    agent.terminate()
    assert job.ended() == 75
    assert "halted at step" in job.log()
    job.agent()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert f"sum {expected_sum(200)}" in job.log()


def test_without_a_helper_the_agent_asks_again(job: Job) -> None:
    """A pod that finds no helper must free its GPUs, and wait longer the next time."""
    job.constants["contract.HELPER_WAIT_FIRST"] = 0.5
    job.configure("true")
    job.agent()
    assert job.ended() == 75


def test_training_goes_on_without_a_helper_for_a_while(job: Job) -> None:
    """A helper that is moved must not stop a training; one that never comes back must."""
    job.constants["contract.HELPER_ABSENCE"] = 2.0
    job.script("train.py", TRAIN)
    job.configure(f"{sys.executable} train.py 100000")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    began = time.monotonic()
    helper.kill()
    assert job.ended() == 75
    assert time.monotonic() - began > 1.9
    assert "no helper" in job.log()


def test_an_outcome_waits_for_the_next_helper(job: Job) -> None:
    """A training that ends while the helper is away is not run again."""
    job.configure("echo run; while ! [ -e ../go ]; do sleep 0.05; done")
    helper, agent = job.helper(), job.agent()
    until(lambda: "run" in job.log(), "the start")
    helper.kill()
    helper.wait()
    job.job_file("go").touch()
    time.sleep(0.3)
    assert agent.poll() is None
    helper = job.helper()
    assert job.ended() == 0
    assert helper.wait(WAIT) == 0
    assert job.log() == "run\n"


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


def test_running_time_is_limited(job: Job) -> None:
    """`max_runtime` ends a job that hangs, with a reason."""
    job.configure("exec sleep 1000", max_runtime=1.0)
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 70
    assert helper.wait(WAIT) == 0
    assert "max_runtime" in job.reasons()[0]


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


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A memory cgroup of 96 MiB."""
    v1, name = Path("/sys/fs/cgroup/memory"), f"ffdl-test-{os.getpid()}"
    group = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / name
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(96 << 20))
        if not v1.is_dir():
            (group / "memory.swap.max").write_text("0")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield group
    until(lambda: not (group / "cgroup.procs").read_text(), "an empty cgroup")
    group.rmdir()


GREEDY = "import sys; a = [bytearray(1 << 20) for _ in range(1000)]; print('survived')"


@pytest.mark.parametrize("tail", ["", "; exit $?"])
def test_out_of_memory_is_told_apart(job: Job, small_memory: Path, tail: str) -> None:
    """More memory helps, another attempt does not: the user must be told, with the limit."""
    job.cgroup = small_memory
    job.script("greedy.py", GREEDY)
    job.configure(f"{sys.executable} greedy.py{tail}")
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 70
    assert helper.wait(WAIT) == 0
    assert job.reasons() == ["learner 1 ran out of memory (limit 96 MiB)"]


def shipped(job: Job) -> set[str]:
    root = job.shared / "ffdl/results"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_checkpoints_are_shipped_while_training_goes_on(job: Job) -> None:
    """The job's volume may be lost with its node: the store has what was committed."""
    job.script("train.py", TRAIN)
    command = f"{sys.executable} train.py 100000"
    store = contract.Store("claim", "out")
    job.configure(command, checkpoint_interval=None, checkpoint_steps=50, results=store)
    helper, _ = job.helper(), job.agent()
    until(lambda: any(name.endswith("COMMITTED") for name in shipped(job)), "a shipped checkpoint")
    assert job.report()["message"] == "training"
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75
    last = max((job.shared / "job/checkpoints").glob("step-*"), key=lambda path: int(path.name[5:])).name
    assert any(last in name and name.endswith("COMMITTED") for name in shipped(job))
    assert any(name.endswith("learner-1/training-log.txt") for name in shipped(job))


def test_a_halt_while_the_store_is_down(job: Job) -> None:
    """The GPUs are freed all the same; what is missing is noted, and shipped on resume."""
    job.constants["contract.SHIP_WAIT_ON_HALT"] = 2.0
    job.script("train.py", TRAIN)
    store = contract.Store("claim", "out")
    job.configure(f"{sys.executable} train.py 1500", checkpoint_interval=None, checkpoint_steps=50, results=store)
    (job.shared / "ffdl/results").rmdir()
    (job.shared / "ffdl/results").write_text("no folder")
    helper, _ = job.helper(), job.agent()
    until(lambda: "from 0" in job.log(), "the start")
    job.suspend()
    assert job.ended() == 75
    assert helper.wait(WAIT) == 75
    journal = max((job.shared / "ffdl/journal").glob("epoch-*.jsonl")).read_text()
    assert json.loads(journal.splitlines()[-1])["kind"] == "unshipped"
    assert "unshipped" in job.report()["message"]
    (job.shared / "ffdl/results").unlink()
    (job.shared / "ffdl/results").mkdir()
    job.suspend(False)
    helper, _ = job.helper(), job.agent()
    until(lambda: any(name.endswith("COMMITTED") for name in shipped(job)), "a shipped checkpoint")
    job.annotate(contract.ANNOTATION_STOP, "now")
    assert job.ended() == 70
    assert helper.wait(WAIT) == 0


def test_the_helper_is_small(job: Job) -> None:
    """Every job has one, for all of its life."""
    job.configure("exec sleep 1000")
    helper, _ = job.helper(), job.agent()
    until(lambda: job.report().get("message") == "training", "training")
    lines = Path(f"/proc/{helper.pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
    print(sizes["Pss:"], "KiB")
    assert sizes["Pss:"] < 24 * 1024
