"""The fixture of the behaviour tests: a user, and nothing of theirs left on the machine afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.behaviours.user import User
from tests.steps import s3 as servers


def mounts(user: User) -> list[str]:
    """Those that a pod of this user's made and that its end should have taken along."""
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(user.folder) in line]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """A user; afterwards, once every job is deleted, nothing of theirs may be left on the machine."""
    yield from visit(tmp_path)


@pytest.fixture
def odd_user(tmp_path: Path) -> Iterator[User]:
    """A user whose folders have names that nobody expects."""
    folder = tmp_path / 'with spaces, žluť 🐎 \'n "quotes" $HOME %s {{x}}: \\'
    folder.mkdir()
    yield from visit(folder)


def visit(folder: Path) -> Iterator[User]:
    someone = User(folder)
    yield someone
    someone.env.pop("FFDL_RETRY_SECONDS", None)
    for job in someone.engine.ids():
        someone.ffdl("delete", job, "-y")
    someone.wait_for(lambda: not someone.processes(), f"the end of {someone.processes()}")
    assert mounts(someone) == []
    assert someone.cgroups() == []
    assert [entry.name for entry in (someone.home / "leases").iterdir() if entry.name != "lock"] == []
    assert list((someone.home / "jobs").iterdir()) == []
    assert list((someone.home / "active").iterdir()) == []
    assert list((someone.home / "trash").iterdir()) == []


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """An S3 server for all tests; each makes buckets of its own."""
    with servers.serve(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def dice() -> random.Random:
    """Seeded random numbers; the seed is printed."""
    seed = random.randrange(2**32)
    print("seed", seed)
    return random.Random(seed)


@pytest.fixture
def setting(user: User, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets a variable for the user's commands and for the engine in this process: either may start a job's runner."""

    def set_both(name: str, value: str) -> None:
        user.env[name] = value
        monkeypatch.setenv(name, value)

    return set_both


SHORT = {"STEPS": "60"}


@pytest.fixture(scope="session")
def short_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of the small job with SHORT as its environment, in a run that nobody disturbed."""
    someone = User(tmp_path_factory.mktemp("short"))
    job = someone.train(someone.job(env=SHORT))
    assert someone.until_over(job).state == "COMPLETED", someone.story()
    model = someone.model(job)
    someone.ffdl("delete", job, "-y")
    return model
