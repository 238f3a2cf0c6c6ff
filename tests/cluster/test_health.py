"""`up` returns, and a fault test goes on, when jobs can really run again: not a moment earlier."""

from __future__ import annotations

from typing import Any

from tests.cluster import health, leftovers
from tests.cluster.place import DEVICES


def deployment(namespace: str, name: str, wanted: int = 1, **status: int) -> dict[str, Any]:
    healthy = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    metadata = {"namespace": namespace, "name": name, "generation": 1}
    return {"metadata": metadata, "spec": {"replicas": wanted}, "status": {**healthy, **status}}


def all_but(name: str) -> list[dict[str, Any]]:
    return [deployment(*which) for which in health.NEEDED if which[1] != name]


def test_a_node_without_all_devices_is_not_ready() -> None:
    """A kubelet that was started again knows no devices for a moment; pods that want one would fail."""
    ready = [{"type": "Ready", "status": "True"}]
    assert health.node({"status": {"conditions": ready, "allocatable": dict.fromkeys(DEVICES, "8")}})
    assert not health.node({"status": {"conditions": ready, "allocatable": dict.fromkeys(DEVICES, "0")}})
    assert not health.node({"status": {"conditions": ready}})
    unknown = [{"type": "Ready", "status": "Unknown"}]
    assert not health.node({"status": {"conditions": unknown, "allocatable": dict.fromkeys(DEVICES, "8")}})


def test_deployments_count_when_their_present_version_runs_alone() -> None:
    """A controller that is about to be replaced would still take a Workflow and drop it."""
    assert health.deployments([*all_but("coredns"), deployment("kube-system", "coredns")])
    assert not health.deployments(all_but("coredns"))
    assert not health.deployments([*all_but("coredns"), deployment("somewhere", "coredns")])
    for late in ({"observedGeneration": 0}, {"updatedReplicas": 0}, {"availableReplicas": 0}, {"replicas": 2}):
        assert not health.rolled_out(deployment("argo", "argo-server", **late))
    none = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 0)
    assert not health.rolled_out(deployment("argo", "argo-server", 0, **none))


def test_leftovers_are_told_by_kind() -> None:
    """Whoever runs `down` reads what to clean up by hand, and nothing that was there before."""
    before = {"links": ["lo", "eth0"], "mounts": []}
    assert leftovers.compare(before, {"links": ["lo"], "mounts": []}) == []
    after = {"links": ["lo", "eth0", "ffdl-cluster"], "mounts": ["/x"], "routes": ["default"]}
    assert leftovers.compare(before, after) == ["links: ffdl-cluster", "mounts: /x", "routes: default"]
