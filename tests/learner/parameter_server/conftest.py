"""Jobs with parameter servers, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner.conftest import Start
from tests.learner.parameter_server.servers import Begin, Job


@pytest.fixture
def job(tmp_path: Path, start: Start) -> Iterator[Begin]:
    jobs: list[Job] = []

    def begin(size: int, servers: int, mode: str, **more: Any) -> Job:
        jobs.append(Job(tmp_path / str(len(jobs)), start, size, servers, mode, **more))
        return jobs[-1]

    yield begin
    for each in jobs:
        each.close()
