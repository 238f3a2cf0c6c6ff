"""How a job ends, by agent and helper as real processes: whose exit code counts, what is tried again, who is told."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.learner import contract
from tests.steps.pods import WAIT, Job, until


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


def test_running_time_is_limited(job: Job) -> None:
    """`max_runtime` ends a job that hangs, with a reason."""
    job.configure("exec sleep 1000", max_runtime=1.0)
    helper, _ = job.helper(), job.agent()
    assert job.ended() == 70
    assert helper.wait(WAIT) == 0
    assert "max_runtime" in job.reasons()[0]


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
