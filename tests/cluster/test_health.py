"""`up` returns, and a fault test goes on, when jobs can really run again: not a moment earlier."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import health, leftovers, namespaces
from tests.cluster.place import DEVICES, Place
from tests.cluster.processes import Process

APART = ["unshare", "--net", "--mount"]


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


def test_a_process_that_holds_the_clusters_namespaces_is_told(tmp_path: Path) -> None:
    """A forgotten shell in there keeps all of the cluster's mounts and rules alive, though nothing of it is seen."""
    if os.geteuid() != 0 or shutil.which("ip") is None or subprocess.run([*APART, "true"]).returncode:
        pytest.skip("needs root, iproute2 and a kernel that gives namespaces")
    place = Place(tmp_path / "cache", 6)
    others = subprocess.Popen([*APART, "sleep", "600"])  # anybody's namespaces are none of the cluster's
    try:
        assert leftovers.namespaces(place) == []
        pid = namespaces.hold(place, tmp_path / "cgroup.procs")
        inside = namespaces.enter(pid, mounts=False)
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*inside, "ip", "addr", "add", f"{place.address}/32", "dev", "lo"], check=True)
        held = [f"{os.readlink(f'/proc/{pid}/ns/{kind}')} of {pid} (sleep)" for kind in ("mnt", "net")]
        assert leftovers.namespaces(place) == held
        assert leftovers.namespaces(Place(tmp_path / "cache", 5)) == []
    finally:
        Process(place.run, "namespaces").kill()
        others.kill()
        others.wait()
    assert leftovers.namespaces(place) == []
