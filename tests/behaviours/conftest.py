"""The fixture of the behaviour tests: a user, and nothing of theirs left on the machine afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours.user import User


def mounts() -> list[str]:
    return sorted(line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """A user; afterwards, once every job is deleted, nothing of theirs may be left on the machine."""
    before = mounts()
    someone = User(tmp_path)
    yield someone
    someone.env.pop("FFDL_RETRY_SECONDS", None)
    for job in someone.engine.ids():
        someone.ffdl("delete", job, "-y")
    someone.wait_for(lambda: not someone.processes(), f"the end of {someone.processes()}")
    assert mounts() == before
    assert someone.cgroups() == []
    assert [entry.name for entry in (someone.home / "leases").iterdir() if entry.name != "lock"] == []
    assert list((someone.home / "jobs").iterdir()) == []
    assert list((someone.home / "active").iterdir()) == []
    assert list((someone.home / "trash").iterdir()) == []
