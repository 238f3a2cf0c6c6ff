"""The embedded engine for tests that run real Workflows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.engines.local.engine import LocalEngine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    """A home of its own; its jobs are deleted afterwards, so that none outlives the test."""
    made = LocalEngine(tmp_path / "home")
    yield made
    for job_id in made.ids():
        made.delete(job_id)
