"""Users of the embedded engine whom few think of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours.conftest import Visit
from tests.behaviours.user import User


@pytest.fixture
def odd_user(visit: Visit, tmp_path: Path) -> Iterator[User]:
    """A user whose folders have names that nobody expects."""
    folder = tmp_path / 'with spaces, žluť 🐎 \'n "quotes" $HOME %s {{x}}: \\'
    folder.mkdir()
    with visit(folder) as someone:
        yield someone
