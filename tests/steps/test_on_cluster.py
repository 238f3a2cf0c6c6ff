"""The helper's view against a real API server and a real Argo, as the service account that helpers have."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ffdl.learner import contract
from ffdl.steps.cluster_view import ClusterView
from ffdl.steps.kube import Kube, KubeError
from ffdl.steps.view import Snapshot
from tests.cluster.cluster import Cluster

WAIT = 120.0  # seconds until a test gives up on a condition
Object = dict[str, Any]
BASE = {"image": "localhost/debian:bookworm", "imagePullPolicy": "IfNotPresent", "command": ["true"]}


class Tenant:
    """A namespace of our own, and what the helper's account may do in it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder, self.namespace = cluster, folder, f"ffdl-steps-{uuid.uuid4().hex[:6]}"
        cluster.tenant(self.namespace)
        folder.mkdir()
        (folder / "token").write_text(self.kubectl("create", "token", "ffdl-helper", "--duration=1h"))
        (folder / "namespace").write_text(self.namespace)
        deadline = time.monotonic() + WAIT
        while not (certificate := self._certificate()):
            assert time.monotonic() < deadline, "the namespace never got its ca.crt"
            time.sleep(0.2)
        (folder / "ca.crt").write_text(certificate)
        self.views: list[ClusterView] = []

    def kubectl(self, *arguments: str, text: str = "") -> str:
        command = [str(self.cluster.place.tools / "kubectl"), "-n", self.namespace, *arguments]
        environment = {"KUBECONFIG": str(self.cluster.place.kubeconfig), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, input=text, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, name: str, command: str, **learner: Any) -> None:
        """A Workflow of two learners that run `command`, and nothing else."""
        labels = {contract.LABEL_JOB: name, contract.LABEL_ROLE: "learner"}
        again = "lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [-1, 75, 143]"
        backoff = {"duration": "1s", "factor": 1}
        template = {
            "name": "learner",
            "inputs": {"parameters": [{"name": "index"}]},
            "metadata": {"labels": labels},
            "podSpecPatch": json.dumps({"terminationGracePeriodSeconds": 3}),
            "retryStrategy": {"retryPolicy": "Always", "limit": "100", "backoff": backoff, "expression": again},
            "container": {**BASE, "command": ["sh", "-c", command]},
            **learner,
        }
        parameters = {"parameters": [{"name": "index", "value": "{{item}}"}]}
        task = {"name": "learner", "template": "learner", "withParam": "[0,1]", "arguments": parameters}
        spec = {"entrypoint": "training", "automountServiceAccountToken": False, "serviceAccountName": "ffdl-executor"}
        spec |= {"executor": {"serviceAccountName": "ffdl-executor"}}
        spec |= {"templates": [{"name": "training", "dag": {"failFast": False, "tasks": [task]}}, template]}
        workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}
        self.kubectl("create", "-f", "-", text=json.dumps(workflow))

    def patch(self, name: str, **spec: Any) -> None:
        self.kubectl("patch", "workflow", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def view(self, name: str) -> ClusterView:
        place = self.cluster.place
        made = ClusterView(Kube(place.address, 6443, str(self.folder)), name, str(self.folder / f"journal-{name}"))
        self.views.append(made)
        made.take_epoch()
        return made

    def _certificate(self) -> str:
        with contextlib.suppress(AssertionError):
            return str(json.loads(self.kubectl("get", "cm", "kube-root-ca.crt", "-o", "json"))["data"]["ca.crt"])
        return ""

    def close(self) -> None:
        for view in self.views:
            view.close()
        with contextlib.suppress(AssertionError):
            self.kubectl("delete", "workflows", "--all", "--wait=false")
            self.kubectl("delete", "namespace", self.namespace, "--wait=false")


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    cluster = Cluster()
    if not (cluster.running and cluster.ready()):
        pytest.skip("no cluster runs here: python -m tests.cluster up")
    made = Tenant(cluster, tmp_path_factory.mktemp("cluster") / "account")
    yield made
    made.close()


def until(view: ClusterView, condition: Callable[[Snapshot], object]) -> Snapshot:
    deadline = time.monotonic() + WAIT
    while not condition(found := view.read()):
        assert time.monotonic() < deadline, f"never came: {found}"
        time.sleep(0.05)
    return found


def test_a_job_s_life_as_its_helper_sees_it(tenant: Tenant) -> None:
    """Starting, running, a pod lost, a halt, an end: each is what the coordinator decides by."""
    tenant.submit("life", "trap 'exit 75' TERM; while [ ! -e /tmp/end ]; do sleep 0.2; done")
    view = tenant.view("life")
    starting = until(view, lambda seen: len(seen.pending) == 2)
    assert starting.stuck == ""
    until(view, lambda seen: seen.active == {0, 1})
    pods = sorted(name for name in view._pods.items)
    view.delete_pod(pods[0])
    until(view, lambda seen: len(seen.active) == 1)
    until(view, lambda seen: seen.active == {0, 1})
    tenant.patch("life", suspend=True)
    until(view, lambda seen: seen.suspended)
    assert view.read(fresh=True).suspended
    tenant.patch("life", suspend=None)
    running = [name for name, pod in view._pods.items.items() if pod.works]
    for name in running:
        tenant.kubectl("exec", name, "-c", "main", "--", "touch", "/tmp/end")
    assert until(view, lambda seen: len(seen.members) == 2).members == {0: "Succeeded", 1: "Succeeded"}


def test_a_pending_pod_is_withdrawn_and_comes_back(tenant: Tenant) -> None:
    """A halt deletes it; in the halted Workflow it does not return, in the resumed one it does."""
    tenant.submit("room", "true", nodeSelector={"no": "such-node"})
    view = tenant.view("room")
    names = until(view, lambda seen: len(seen.pending) == 2).pending
    tenant.patch("room", suspend=True)
    until(view, lambda seen: seen.suspended)
    for name in names:
        view.delete_pod(name)
    until(view, lambda _: not view._pods.items)
    tenant.patch("room", suspend=None)
    until(view, lambda _: len(view._pods.items) == 2)
    view.stop({contract.ANNOTATION_REASON: "no such node"})
    until(view, lambda seen: len(seen.members) == 2)
    about = json.loads(tenant.kubectl("get", "workflow", "room", "-o", "json"))
    assert about["metadata"]["annotations"][contract.ANNOTATION_REASON] == "no such node"


MISSING = {"volumes": [{"name": "v", "secret": {"secretName": "none"}}]}


@pytest.mark.parametrize(
    ("name", "learner", "words"),
    [
        ("image", {"container": {**BASE, "image": "localhost/none:1"}}, "localhost/none:1"),
        ("secret", {"container": {**BASE, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}, **MISSING}, '"none"'),
        ("agent", {"initContainers": [{**BASE, "name": "agent", "command": ["false"]}]}, "agent: Error (exit code 1)"),
    ],
)
def test_why_a_job_can_not_start(tenant: Tenant, name: str, learner: Object, words: str) -> None:
    """Told by the pod, by its events alone, or by attempts that never begin: it ends as the reason of the failure."""
    tenant.submit(name, "true", **learner)
    view = tenant.view(name)
    assert words in until(view, lambda seen: seen.stuck).stuck
    view.stop({contract.ANNOTATION_REASON: "seen"})


def test_the_helper_may_do_no_more_than_it_must(tenant: Tenant) -> None:
    """Its token lies in a pod of the tenant: it must open neither Secrets nor other jobs' code."""
    kube = Kube(tenant.cluster.place.address, 6443, str(tenant.folder))
    for plural in ("secrets", "configmaps", "serviceaccounts"):
        with pytest.raises(KubeError, match="403"):
            list(kube.list(plural))
    with pytest.raises(KubeError, match="403"):
        kube.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    kube.close()


def test_a_dead_connection_does_not_hide_a_halt(tenant: Tenant) -> None:
    """What the network breaks is mended from both sides: nothing is missed meanwhile."""
    tenant.submit("broken", "sleep 100", nodeSelector={"no": "such-node"})
    view = tenant.view("broken")
    for suspended in (True, False, True):
        for connection in list(view._kube._busy):
            connection.sock.close()
        tenant.patch("broken", suspend=suspended or None)
        until(view, lambda seen, suspended=suspended: seen.suspended == suspended)  # type: ignore[misc]
