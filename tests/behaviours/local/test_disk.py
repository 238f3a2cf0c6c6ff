"""A disk that is full, at the worst moment."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from tests.behaviours.local_user import LocalUser
from tests.behaviours.user import GATED, SHORT


@pytest.fixture
def small_disk(user: LocalUser) -> Iterator[None]:
    """The user's home is a file system of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    user.home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", user.home], check=True)
    try:
        yield
        for job in user.engine.ids():
            user.ffdl("delete", job, "-y", "--results")
        user.wait_for(lambda: not user.processes(), "the end")
    finally:
        subprocess.run(["umount", "-l", user.home], check=True)
        user.ffdl("list")


def fill_up(user: LocalUser) -> Path:
    """Leaves no room on the small disk. Returns the file to remove."""
    ballast = user.home / "ballast"
    with open(ballast, "wb", buffering=0) as stream, pytest.raises(OSError, match="No space left"):
        # not as much as seems free: the job takes of it meanwhile
        deque(map(stream.write, repeat(bytes(4096))), maxlen=0)
    return ballast


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_is_full_while_checkpointing(user: LocalUser, short_model: bytes) -> None:
    """A full disk is nobody's lost run: training goes on, and with room again the job ends with the same model."""
    job = user.train(user.job(env={**SHORT, **GATED}, checkpoint={"interval": "5 steps"}))
    user.until_step(job, 12)
    ballast = fill_up(user)
    assert job in user.ffdl("list").stdout
    before = user.pids("learner")
    assert user.kill("learner")
    user.wait_for(lambda: bool(set(user.pids("learner")) - set(before)), "another try")
    ballast.unlink()
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_stays_full(user: LocalUser, short_model: bytes) -> None:
    """A script that can't write its model fails with its own words; run again with room it gives the model."""
    job = user.train(user.job(env=SHORT, checkpoint={"interval": "5 steps"}))
    user.until_step(job, 12)
    ballast = fill_up(user)
    user.wait_for(lambda: not user.pids("learner"), "the end of the script")
    ballast.unlink()
    assert user.failed(job) == "learner 1 exited with code 1"
    assert "No space left" in user.ffdl("logs", job).stdout
    again = user.ffdl("resubmit", job).stdout.removeprefix("Model ID: ").strip()
    assert user.until_over(again).state == "COMPLETED", user.story()
    assert user.model(again) == short_model
