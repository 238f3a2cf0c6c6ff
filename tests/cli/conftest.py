"""The fixture of the command's tests."""

from pathlib import Path

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A user's shell; the jobs in it are records without processes."""
    return Shell(tmp_path)
