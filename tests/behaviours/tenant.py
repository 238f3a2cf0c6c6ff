"""The namespace of a run of the tests on the cluster that tests/cluster keeps."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.behaviours.kubernetes_api import Api, Object
from tests.cluster.cluster import Cluster, ClusterError

SETTINGS = "ffdl-tenant"
IMAGES = ("registry", "tag", "pull-policy")  # those of its settings that say where the images are


@dataclass
class Tenant:
    """`namespace` is made of argo-config/tenant; `kubeconfig` is a person's who may do there what its users may."""

    cluster: Cluster
    namespace: str
    kubeconfig: Path

    @cached_property
    def api(self) -> Api:
        """The administrator's."""
        return Api(self.cluster.place.kubeconfig, self.namespace)

    @property
    def this_machine(self) -> str:
        """Its address as pods know it."""
        return self.cluster.place.host_address

    def node(self) -> Object:
        (found,) = json.loads(self.api.call("GET", "api/v1/nodes"))["items"]
        node: Object = found
        return node

    def cpus(self) -> float:
        """Of the node, for all pods together."""
        amount = self.node()["status"]["allocatable"]["cpu"]
        return float(amount[:-1]) / 1000 if amount.endswith("m") else float(amount)

    def has_image(self, name: str) -> bool:
        images = self.node()["status"].get("images") or []
        return any(f"/{name}:" in tag for image in images for tag in image.get("names") or ())


def cluster() -> Cluster:
    """The one of this machine; without it the tests are skipped where it can't be, and fail where it can."""
    found = Cluster()
    if found.running and found.ready():
        return found
    said = "no cluster runs here: python -m tests.cluster up"
    if os.geteuid() == 0 and shutil.which("go"):
        pytest.exit(said, returncode=1)
    pytest.skip(said)


@contextlib.contextmanager
def tenant(name: str = "ffdl-test", options: Sequence[str] = ()) -> Iterator[Tenant]:
    """Makes one, with some of argo-config/options, and removes it with all that is in it."""
    found = cluster()
    namespace = f"{name}-{random.randrange(16**6):06x}"
    print("namespace", namespace)
    found.tenant(namespace, *options)
    try:
        there = json.loads(found.kubectl("get", "configmap", SETTINGS, "-n", "ffdl", "-o", "json"))["data"]
        settings = {key: there[key] for key in IMAGES}
        found.kubectl("patch", "configmap", SETTINGS, "-n", namespace, "-p", json.dumps({"data": settings}))
        found.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(_to_this_machine(found)))
        yield Tenant(found, namespace, found.user("tester", namespace))
    finally:
        with contextlib.suppress(ClusterError):
            found.kubectl("delete", "namespace", namespace, "--timeout=120s")


def _to_this_machine(found: Cluster) -> dict[str, object]:
    """The tests' own S3 servers listen on this machine, on any port."""
    peers = [{"ipBlock": {"cidr": f"{found.place.host_address}/32"}}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "to-the-tests"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": peers}]},
    }
