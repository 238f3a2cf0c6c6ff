"""What the cluster starts outlives its command, is found again, and no one else's process is ever hit for it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Process, started, wait_for

SLEEP = ["sleep", "600"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path / "run", "sleeper")
    yield made
    made.kill()


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    return tmp_path / "cgroup.procs"


def test_a_process_outlives_its_starter_and_is_started_once(process: Process, cgroup: Path) -> None:
    """`up` may be called at any time: what runs goes on running, in its own session and cgroup."""
    pid = process.start(SLEEP, cgroup)
    assert process.start(SLEEP, cgroup) == pid == Process(process.run, "sleeper").pid
    assert os.getsid(pid) == pid
    assert cgroup.read_text() == f"{pid}\n"
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()


def test_a_killed_process_is_gone_and_can_be_started_again(process: Process, cgroup: Path) -> None:
    """The fault tests kill components with -9 and need to know the moment at which they are dead."""
    pid = process.start(SLEEP, cgroup)
    process.kill()
    assert process.pid is None
    assert started(pid) is None
    process.kill()
    assert process.start(SLEEP, cgroup) != pid


def test_a_recycled_id_is_never_killed(process: Process, cgroup: Path) -> None:
    """After a reboot the noted id may be anyone's: a text editor must not die for it."""
    pid = process.start(SLEEP, cgroup)
    note = json.loads(process.record.read_text())
    boot, _, ticks = note["started"].partition(" ")
    for other in (f"{boot} {int(ticks) - 1}", f"another-boot {ticks}"):
        process.record.write_text(json.dumps({**note, "started": other}))
        assert process.pid is None
        process.kill()
        assert started(pid) == note["started"]
    process.record.write_text(json.dumps(note))


def test_a_torn_note_counts_as_none(process: Process, cgroup: Path) -> None:
    """A disk that was full when the note was written must not keep the cluster from coming up."""
    pid = process.start(SLEEP, cgroup)
    process.record.write_text('{"pid": ')
    assert process.pid is None
    os.kill(pid, signal.SIGKILL)


def test_what_a_process_prints_is_in_its_log(process: Process, cgroup: Path) -> None:
    """A component that fails at its start says why in a file that the error names."""
    process.start(["sh", "-c", "echo out; echo err >&2; echo $0", "own name"], cgroup)
    wait_for(lambda: process.pid is None, "its end")
    assert process.log.read_text() == "out\nerr\nown name\n"


def test_waiting_says_what_for(process: Process) -> None:
    """Whoever reads `TimeoutError` in a log learns which condition never came."""
    with pytest.raises(TimeoutError, match="the moon: not within 0 s"):
        wait_for(lambda: False, "the moon", within=0)
