"""What nobody should do and somebody does: commands killed midway, damaged files, full disks, unruly scripts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours.local_user import LocalUser
from tests.behaviours.user import FFDL

FOR_EVER = "while true; do sleep 1; done"
SMALL = {"cpus": 0.2, "memory": "100MiB"}


def working(user: LocalUser, command: str = FOR_EVER, name: str = "job") -> str:
    """A job whose command runs."""
    job = user.train(user.command(command, name, halt_grace="1s", **SMALL))
    user.until(job, lambda status: status.state == "PROCESSING")
    return job


def killed_midway(user: LocalUser, dice: random.Random, longest: float, *arguments: str) -> None:
    """Runs a command and kills it after at most `longest` seconds."""
    process = subprocess.Popen(
        [FFDL, *arguments], env=user.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=user.folder
    )
    try:
        process.wait(dice.uniform(longest / 3, longest))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_a_submission_killed_midway_is_a_job_or_none(user: LocalUser, dice: random.Random) -> None:
    """A terminal closes at the worst moment: then there is a job that runs, or nothing at all, not even files."""
    folder = user.command("true", **SMALL)
    began = time.monotonic()
    jobs = {user.train(folder)}
    took = time.monotonic() - began
    for _ in range(4):
        killed_midway(user, dice, took, "train", str(folder / "manifest.yml"))
    user.jobs.update(user.engine.ids())
    for job in user.engine.ids():
        assert user.until_over(job).state == "COMPLETED"
    draft = user.home / "trash" / "training-aaaaaaaaaa-4194305"  # what one killed in the middle of writing leaves
    draft.mkdir()
    (draft / "secret").write_text("not to be kept")
    jobs.add(user.train(folder))
    assert jobs <= set(user.engine.ids())
    assert list((user.home / "trash").iterdir()) == []


def test_a_deletion_killed_midway_is_finished_by_the_next_command(user: LocalUser, dice: random.Random) -> None:
    """Otherwise the job runs on, driven by nobody and shown as at work for ever."""
    jobs = [working(user, name=f"job-{number}") for number in range(3)]
    for job in jobs:
        killed_midway(user, dice, 0.4, "delete", "-y", job)
    marked = [job for job in jobs if (user.home / "jobs" / job / "deleting").exists()]
    user.ffdl("list")
    for job in marked:
        user.wait_for(lambda job=job: job not in user.engine.ids(), f"the end of {job}")  # type: ignore[misc]
    for job in set(user.engine.ids()):
        assert user.engine.status(job).state == "PROCESSING"
    user.train(user.command("true", "another", **SMALL))  # takes along the files that a killed command was removing


@pytest.mark.parametrize("halted", [False, True], ids=["at work", "halted"])
def test_a_deletion_killed_after_its_mark(user: LocalUser, halted: bool) -> None:
    """The mark is what counts, whether there was a runner to see it or not."""
    job = working(user)
    if halted:
        user.ffdl("halt", job)
    else:
        (runner,) = user.pids("runner")
        os.kill(runner, signal.SIGKILL)
    user.wait_for(lambda: not user.pids("runner"), "the runner's end")  # one that is just leaving takes `active` along
    mark = user.home / "jobs" / job / "deleting"  # as `delete` begins
    (user.home / "active" / job).touch()
    mark.touch()
    user.ffdl("list")
    user.wait_for(lambda: not (user.home / "jobs" / job).exists(), "the deletion")
    user.wait_for(lambda: not user.processes(), "the end of its processes")


@pytest.mark.parametrize("content", [b"", b"[]"])
def test_a_damaged_job_does_not_hide_the_others(user: LocalUser, content: bytes) -> None:
    """A disk that lies spoils one file; all other jobs must be listed, and this one can be removed."""
    good = user.train(user.command("true", "good", **SMALL))
    bad = user.train(user.command("true", "bad", **SMALL))
    for job in (good, bad):
        assert user.until_over(job).state == "COMPLETED"
        user.wait_for(lambda job=job: not (user.home / "active" / job).exists(), "rest")  # type: ignore[misc]
    folder = user.home / "jobs" / bad
    (folder / "summary.json").write_bytes(content)
    listed = {job["id"]: job for job in json.loads(user.ffdl("list", "-o", "json").stdout)}
    assert (listed[good]["state"], listed[bad]["state"]) == ("COMPLETED", "COMPLETED")  # the summary is only a copy
    (folder / "control" / "workflow.json").write_bytes(content)
    listed = {job["id"]: job for job in json.loads(user.ffdl("list", "-o", "json").stdout)}
    assert (listed[good]["state"], listed[bad]["state"]) == ("COMPLETED", "FAILED")
    assert "workflow.json is damaged" in listed[bad]["reason"]
    assert f"ffdl delete {bad}" in listed[bad]["reason"]
    assert "damaged" in user.ffdl("logs", bad, code=4).stderr
    shutil.rmtree(folder / "control")
    (folder / "created").unlink()
    assert bad in user.ffdl("list", "-o", "name").stdout
    user.ffdl("delete", "-y", bad)
    assert user.ffdl("list", "-o", "name").stdout.split() == [good]


def test_a_damaged_lease_stops_no_other_job(user: LocalUser) -> None:
    """One bad file must not keep a whole machine from working."""
    job = working(user)
    (user.home / "leases" / f"{job}.json").write_bytes(b"")
    assert user.until_over(user.train(user.command("true", "other", **SMALL))).state == "COMPLETED"


def test_a_runner_killed_while_it_writes_leaves_nothing_in_the_line(user: LocalUser) -> None:
    """What was half written goes with the job."""
    job = working(user)
    (user.home / "leases" / f"{job}.waits.4194305.tmp").touch()
    user.ffdl("delete", "-y", job)
    assert list((user.home / "leases").iterdir()) == []


def test_a_job_stopped_in_line_says_stopped_and_no_more(user: LocalUser) -> None:
    """An error code of a data store would send the user looking for a fault that is none."""
    user.env["FFDL_MACHINE"] = "cpus=1,memory=8GiB"
    first = user.train(user.command(FOR_EVER, "first", cpus=1, halt_grace="1s"))
    user.until(first, lambda status: status.state == "PROCESSING")
    second = user.train(user.command("true", "second", cpus=1))
    user.until(second, lambda status: status.state == "QUEUED")
    user.ffdl("stop", second)
    status = user.until_over(second)
    assert (status.state, status.reason, status.error_code) == ("FAILED", "stopped", "")


@pytest.mark.parametrize(
    "trick",
    [
        'rm -r "$LOG_DIR/learner-1"; ln -s {secret} "$LOG_DIR/learner-1"',
        'cd /; mv "$LOG_DIR" "$LOG_DIR.old"; ln -s {secret} "$LOG_DIR"',
        'cd "$LOG_DIR/learner-1"; rm *; ln -s {secret}/evaluation-metrics.txt; ln -s {secret}/training-log.txt',
        'cd "$LOG_DIR/learner-1"; rm *; mkfifo evaluation-metrics.txt training-log.txt',
        'rm -r "$RESULT_DIR"; ln -s {secret} "$RESULT_DIR"; rm -r "$CHECKPOINT_DIR"; ln -s {secret} "$CHECKPOINT_DIR"',
    ],
    ids=["learner's folder", "log folder", "files", "fifos", "results"],
)
def test_links_lead_nowhere(user: LocalUser, trick: str) -> None:
    """What a job's code makes links to is neither shown nor stored, and a fifo holds nobody up."""
    secret = user.folder / "secret"
    secret.mkdir()
    (secret / "training-log.txt").write_text("TOPSECRET\n")
    (secret / "evaluation-metrics.txt").write_text('{"meta": {"time": 1}, "values": {"TOPSECRET": {"value": "1"}}}\n')
    before = {path.name: path.read_bytes() for path in secret.iterdir()}
    wait = '; touch "$LOG_DIR.set"; until [ -e "$LOG_DIR.go" ]; do sleep 0.1; done'
    job = working(user, trick.format(secret=secret) + wait)
    user.wait_for((user.volume(job) / "job" / "logs.set").exists, "the trick")
    said = [user.ffdl("metrics", job).stdout, user.ffdl("logs", job).stdout]
    user.ffdl("halt", job)
    user.ffdl("resume", job)  # the next attempt finds what this one has left
    user.until(job, lambda status: status.attempts == 2 and status.state == "PROCESSING" and not status.reason)
    user.ffdl("stop", job)
    user.until_over(job)
    said += [user.ffdl("metrics", job).stdout, user.ffdl("logs", job).stdout]
    said += [path.read_text(errors="replace") for path in user.results(job).glob("learner-*/*") if path.is_file()]
    assert "TOPSECRET" not in "".join(said)
    assert {path.name: path.is_file() and path.read_bytes() for path in secret.iterdir()} == before


@pytest.fixture
def tiny(user: LocalUser) -> Iterator[Path]:
    """The user's home on a disk of 8 MB. Yields a file that takes all of it."""
    user.home.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "ffdl-test", str(user.home)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user can't mount")
    yield user.home / "ballast"
    for job in user.engine.ids():
        user.ffdl("delete", "-y", job)
    user.wait_for(lambda: not user.processes(), "the end of all")
    subprocess.run(["umount", str(user.home)], check=True)


def fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)


def test_a_full_disk_is_said_and_a_job_can_be_deleted_from_it(user: LocalUser, tiny: Path) -> None:
    """Deleting is how room is made: it must work when there is none."""
    job = working(user)
    fill(tiny)
    done = user.ffdl("train", str(user.command("true", "other", **SMALL) / "manifest.yml"), code=4)
    assert "the disk is full" in done.stderr
    user.ffdl("delete", "-y", job)
    assert user.ffdl("list", "-o", "name").stdout == ""
    user.until_at_rest()


def test_a_job_outlives_a_full_disk(user: LocalUser, tiny: Path) -> None:
    """Once there is room again the job goes on by itself, though nobody runs a command."""
    gate = user.folder / "gate"
    folder = user.command('until [ -e "$GATE" ]; do sleep 0.05; done', env={"GATE": str(gate)}, **SMALL)
    job = user.train(folder)
    user.until(job, lambda status: status.state == "PROCESSING")
    fill(tiny)
    gate.touch()
    time.sleep(3)  # for all that would trip over the full disk to do so
    tiny.unlink()
    status = user.home / "jobs" / job / "control" / "status.json"
    user.wait_for(lambda: json.loads(status.read_text()).get("phase") == "Succeeded", "the end")
