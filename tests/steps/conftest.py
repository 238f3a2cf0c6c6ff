"""The fixture of tests in which agents and helpers run as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.steps.pods import Job


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.close()
    for log in sorted(tmp_path.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')}")
