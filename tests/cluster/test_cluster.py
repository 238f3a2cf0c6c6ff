"""The cluster itself, on this machine: brought up beside any other, hurt, and taken down without a trace.

Takes minutes and needs root, so only on request: FFDL_TEST_CLUSTER=1 pytest tests/cluster/test_cluster.py
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import cgroups, leftovers
from tests.cluster.cluster import Cluster, ClusterError
from tests.cluster.place import DEVICES, NAMESPACE, NODE, Place, cache_folder
from tests.cluster.processes import started, wait_for
from tests.cluster.requirements import missing, widen_path

pytestmark = [
    pytest.mark.skipif("FFDL_TEST_CLUSTER" not in os.environ, reason="minutes of work for root: FFDL_TEST_CLUSTER=1"),
    pytest.mark.timeout(900),
]
NUMBER = 7  # beside the one that people use
BEFORE: dict[str, list[str]] = {}
POD: dict[str, Any] = {"image": "localhost/debian:bookworm", "command": ["sleep", "infinity"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    widen_path()
    if lines := missing():
        pytest.skip("; ".join(lines))
    made = Cluster(Place(cache_folder(), NUMBER))
    made.down()
    BEFORE.update(leftovers.survey(made.place))
    made.up()
    yield made
    made.down()


def run_pod(cluster: Cluster, name: str, namespace: str = "default", **spec: Any) -> None:
    """Start a pod and wait until it is ready. `spec` goes to its container."""
    labels = {"app": name}
    pod = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", **POD, **spec}]}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    cluster.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    )
    cluster.kubectl("wait", "pod", name, "-n", namespace, "--for=condition=Ready", "--timeout=120s")


def test_it_has_what_jobs_need(cluster: Cluster) -> None:
    """Argo's full schema, a default class for shared volumes, pretended devices, the tenant as argo-config has it."""
    assert cluster.ready()
    assert cluster.kubectl("get", "namespace", NAMESPACE, "-o", "name")
    refused = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"generateName": "x-"}}
    with pytest.raises(ClusterError, match="entrypoynt"):
        cluster.kubectl(
            "create", "--validate=strict", "-f", "-", stdin=json.dumps({**refused, "spec": {"entrypoynt": "typo"}})
        )
    run_pod(cluster, "devices", resources={"limits": dict.fromkeys(DEVICES, 2)})
    assert cluster.kubectl("exec", "-n", "default", "devices", "--", "printenv", "NVIDIA_COM_GPU").count(",") == 1


def test_many_pods_write_to_one_volume_whoever_they_are(cluster: Cluster) -> None:
    """Learners, the helper and the steps share the job's volume and run as different users."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": spec}
    cluster.kubectl("apply", "-n", "default", "-f", "-", stdin=json.dumps(claim))
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}
    for user in (0, 65532):
        container = {"name": "main", **POD, "securityContext": {"runAsUser": user}}
        container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        pod = {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": [volume]}
        meta = {"name": f"user-{user}", "namespace": "default"}
        cluster.kubectl(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
        )
    for user in (0, 65532):
        cluster.kubectl("wait", "pod", f"user-{user}", "-n", "default", "--for=condition=Ready", "--timeout=120s")
        cluster.kubectl("exec", "-n", "default", f"user-{user}", "--", "sh", "-c", f"id -u > /v/{user}")
    assert cluster.kubectl("exec", "-n", "default", "user-65532", "--", "cat", "/v/0", "/v/65532") == "0\n65532\n"
    folder = Path(json.loads(cluster.kubectl("get", "pv", "-o", "json"))["items"][0]["spec"]["hostPath"]["path"]).parent
    (ours,) = [path for path in folder.iterdir() if (path / "65532").exists()]
    cluster.kubectl("delete", "-n", "default", "pod", "user-0", "user-65532")
    cluster.kubectl("delete", "-n", "default", "pvc", "shared")
    wait_for(lambda: not ours.exists(), "the end of the volume's folder", 30)


CONNECT = "import socket; socket.create_connection(('{}', {}), 3)"


def connects(cluster: Cluster, pod: str, namespace: str, address: str, port: int) -> bool:
    """Whether a pod gets a TCP connection to an address within 3 s."""
    command = [
        str(cluster.place.tools / "kubectl"),
        f"--kubeconfig={cluster.place.kubeconfig}",
        "exec",
        "-n",
        namespace,
    ]
    done = subprocess.run([*command, pod, "--", "python3", "-c", CONNECT.format(address, port)], capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def test_network_policies_are_enforced(cluster: Cluster) -> None:
    """Isolation between tenants is claimed only because it is seen here: one pod is let in, another refused."""
    cluster.kubectl("create", "namespace", "stranger")
    run_pod(cluster, "server", NAMESPACE, command=["python3", "-m", "http.server", "8080"])
    run_pod(cluster, "inside", NAMESPACE)
    run_pod(cluster, "outside", "stranger")
    address = cluster.kubectl("get", "pod", "server", "-n", NAMESPACE, "-o", "jsonpath={.status.podIP}")
    wait_for(lambda: connects(cluster, "inside", NAMESPACE, address, 8080), "the tenant's own pod", 30)
    wait_for(lambda: not connects(cluster, "outside", "stranger", address, 8080), "the stranger's refusal", 30)
    assert connects(cluster, "inside", NAMESPACE, cluster.place.address, 7070)
    assert connects(cluster, "inside", NAMESPACE, "kubernetes.default.svc.cluster.local", 443)
    assert not connects(cluster, "inside", NAMESPACE, cluster.place.address, 5000)
    assert connects(cluster, "outside", "stranger", cluster.place.address, 5000)


def test_a_user_has_a_tenants_rights_and_no_others(cluster: Cluster) -> None:
    """The tests of isolation speak as A and as B; neither may be an administrator by accident."""
    config = cluster.user("alice")

    def may(verb: str, what: str, namespace: str) -> bool:
        command = [str(cluster.place.tools / "kubectl"), f"--kubeconfig={config}", "auth", "can-i", verb, what]
        return subprocess.run([*command, "-n", namespace], capture_output=True).returncode == 0

    assert may("create", "workflows.argoproj.io", NAMESPACE)
    assert not may("create", "workflows.argoproj.io", "default")
    assert not may("list", "secrets", NAMESPACE)


def test_images_are_pushed_to_its_registry_and_pulled_by_pods(cluster: Cluster) -> None:
    """`ffdl images build --push` and the pulls of `ffdl doctor` are tried on a real registry."""
    name, ctr = f"{cluster.place.registry}/pause:1", [str(cluster.place.tools / "ctr"), "images"]
    subprocess.run([*ctr, "tag", "localhost/pause:1", name], check=True, capture_output=True)
    subprocess.run([*ctr, "push", "--plain-http", name], check=True, capture_output=True)
    subprocess.run([*ctr, "remove", name], check=True, capture_output=True)
    run_pod(cluster, "pulled", image=name, imagePullPolicy="Always", command=["/pause"])


def test_a_drained_node_takes_pods_again(cluster: Cluster) -> None:
    """Nodes are drained for upgrades while jobs run: the matrix does that here, with Argo's own pods in the way."""
    run_pod(cluster, "evicted")
    cluster.kubectl("drain", NODE, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
    assert not cluster.kubectl("get", "pods", "-n", "default", "-o", "name")
    cluster.kubectl("uncordon", NODE)
    wait_for(cluster.ready, "the cluster", 90)
    run_pod(cluster, "evicted")


def test_up_again_changes_nothing(cluster: Cluster) -> None:
    """`up` is what people type when they don't know: it must not disturb what runs."""
    pids = {name: cluster.process(name).pid for name in ("namespaces", *cluster.components)}
    cluster.up()
    assert {name: cluster.process(name).pid for name in pids} == pids
    assert all(pids.values())


@pytest.mark.parametrize("name", [*Cluster().components, "argo-controller"])
def test_each_component_can_be_killed_and_started_again(cluster: Cluster, name: str) -> None:
    """The fault matrix rests on this: -9, some time of absence, back, and pods that ran are still running."""
    run_pod(cluster, "witness")
    uid = cluster.kubectl("get", "pod", "witness", "-n", "default", "-o", "jsonpath={.metadata.uid}")
    cluster.kill(name)
    if name in cluster.components:
        assert cluster.process(name).pid is None
    time.sleep(1)
    cluster.start(name)
    cluster.start(name)
    wait_for(cluster.ready, "the cluster", 90)
    run_pod(cluster, f"after-{name}", resources={"limits": {"nvidia.com/gpu": 1}})
    cluster.kubectl("delete", "pod", f"after-{name}", "-n", "default")
    status = json.loads(cluster.kubectl("get", "pod", "witness", "-n", "default", "-o", "json"))
    assert status["metadata"]["uid"] == uid
    assert status["status"]["containerStatuses"][0]["restartCount"] == 0


def test_up_over_a_crashed_one_works(cluster: Cluster) -> None:
    """After a power cut there are notes of processes that are gone, or are someone else's now."""
    cgroups.end(cluster.place.name)
    assert not cluster.running
    with subprocess.Popen(["sleep", "600"]) as stranger:
        note = cluster.process("etcd").record
        note.write_text(json.dumps({**cluster.process("etcd").known, "pid": stranger.pid}))
        cluster.up()
        assert started(stranger.pid)
        stranger.kill()
    assert cluster.ready()


def test_down_leaves_nothing(cluster: Cluster) -> None:
    """Whoever ran the tests gets the machine back: processes, mounts, links, rules, cgroups, kernel settings."""
    run_pod(cluster, "last")
    assert cluster.down() == []
    after = leftovers.survey(cluster.place)
    assert leftovers.compare(BEFORE, after) == []
    assert leftovers.compare(after, BEFORE) == []
    assert not cluster.place.run.exists()
    named = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(cluster.place.run) in line]
    assert named == []
