"""Fixtures: a small API server of the test's own, and, where a cluster runs, a namespace of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.engines.argo.access import Api
from ffdl.engines.argo.connection import connect
from tests.behaviours.tenant import Tenant, tenant
from tests.cluster.cluster import Cluster
from tests.steps.api_server import ApiServer, serve


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl for the server's certificate")
    with serve(tmp_path / "api") as running:
        yield running


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> Path:
    """A user of the small server, in namespace ns."""
    return server.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def api(kubeconfig: Path) -> Api:
    return Api(connect(kubeconfig=str(kubeconfig)))


@pytest.fixture(scope="session")
def team() -> Iterator[Tenant]:
    """A tenant of the cluster that runs on this machine."""
    found = Cluster()
    if not (found.running and found.ready()):
        pytest.skip("no cluster runs here: python -m tests.cluster up")
    with tenant("ffdl-engine") as made:
        yield made
