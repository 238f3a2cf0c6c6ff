"""The fixtures of the behaviour tests: a user on the chosen engine, and nothing of theirs left afterwards."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.behaviours.local_user import LocalUser
from tests.behaviours.user import SHORT, User
from tests.steps import s3 as servers

if TYPE_CHECKING:
    from tests.behaviours.tenant import Tenant

Visit = Callable[[Path], AbstractContextManager[User]]


@pytest.fixture(scope="session")
def visit(request: pytest.FixtureRequest) -> Visit:
    """Makes a user with a folder of theirs; once every job of theirs is deleted, nothing of them may be left."""
    make: Callable[[Path], User] = LocalUser
    if request.config.getoption("--engine") == "argo":
        from tests.behaviours.cluster_user import ClusterUser

        tenant = request.getfixturevalue("tenant")
        make = lambda folder: ClusterUser(folder, tenant)  # noqa: E731

    @contextlib.contextmanager
    def comes(folder: Path) -> Iterator[User]:
        someone = make(folder)
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("FFDL_MACHINE", "")  # a user of this machine sets it
            yield someone
            someone.env.pop("FFDL_RETRY_SECONDS", None)
            for job in someone.engine.ids():
                someone.ffdl("delete", job, "-y")
            someone.wait_for(lambda: not someone.running(), f"the end of {someone.running()}")
            assert someone.leftovers() == []

    return comes


@pytest.fixture(scope="session")
def tenant() -> Iterator[Tenant]:
    """The namespace of this run, on the cluster."""
    from tests.behaviours.tenant import tenant as made

    with made() as found:
        yield found


@pytest.fixture
def user(visit: Visit, tmp_path: Path) -> Iterator[User]:
    with visit(tmp_path) as someone:
        yield someone


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """An S3 server for all tests; each makes buckets of its own."""
    address = "127.0.0.1"
    if request.config.getoption("--engine") == "argo":
        address = request.getfixturevalue("tenant").this_machine
    with servers.serve(tmp_path_factory.mktemp("s3"), address=address) as server:
        yield server


@pytest.fixture
def buckets(s3: servers.Server) -> tuple[Path, Path]:
    """A bucket with data and one for results, new ones."""
    name = uuid.uuid4().hex[:12]
    return s3.bucket(f"data-{name}"), s3.bucket(f"results-{name}")


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


def undisturbed(visit: Visit, folder: Path, **env: str) -> bytes:
    """The model of the small job in a run that nobody disturbed, on the engine that is tested."""
    with visit(folder) as someone:
        job = someone.train(someone.job(env={"PAUSE": "0", **env}))
        assert someone.until_over(job).state == "COMPLETED", someone.story()
        return someone.model(job)


@pytest.fixture(scope="session")
def reference(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The small job's model."""
    return undisturbed(visit, tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="session")
def short_model(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The small job's model with SHORT as its environment."""
    return undisturbed(visit, tmp_path_factory.mktemp("short"), **SHORT)
