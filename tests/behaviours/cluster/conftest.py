"""Users of a cluster, and a second tenant beside theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.tenant import Tenant, tenant


@pytest.fixture
def neighbours() -> Iterator[Tenant]:
    """Another tenant of the same cluster."""
    with tenant("ffdl-next") as made:
        yield made


@pytest.fixture
def neighbour(neighbours: Tenant, tmp_path: Path) -> ClusterUser:
    """A user of theirs; their namespace goes with all that is in it."""
    folder = tmp_path / "neighbour"
    folder.mkdir()
    return ClusterUser(folder, neighbours)
