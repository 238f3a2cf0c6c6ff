"""Jobs on a real cluster, by the engine's methods: what is made, what they do where nobody helps, what is left."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ffdl.engines.argo.deletion import FINALIZER
from ffdl.engines.argo.engine import ArgoEngine
from ffdl.engines.argo.objects import RECORD, STATUS
from ffdl.engines.base import EngineError, NoSuchJob, Refused
from ffdl.engines.client import new_job_id
from ffdl.learner import contract
from ffdl.workflows.compile import Compiled
from tests.behaviours.tenant import Tenant
from tests.engines.argo.cutting import way
from tests.engines.argo.plain import compiled, engine, submitted, until

COUNT = "for i in 1 2 3; do echo {{inputs.parameters.index}} says $i; sleep 0.3; done"


@pytest.fixture
def argo(team: Tenant) -> Iterator[ArgoEngine]:
    """The engine of a user of the team; whatever they leave is deleted."""
    found = engine(team)
    yield found
    for job_id in found.ids():
        found.delete(job_id)
    assert objects(team) == set()


def objects(team: Tenant) -> set[str]:
    """What there is of anybody's jobs."""
    kinds = ("workflows", "configmaps", "secrets", "pods", "persistentvolumeclaims", "services")
    deadline = time.monotonic() + 60  # what a deletion leaves to the cluster's garbage collection
    while True:
        found = {f"{kind}/{o['metadata']['name']}" for kind in kinds for o in team.api.list(kind)}
        found = {name for name in found if "/training-" in name}
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def test_a_job_from_its_submission_to_its_deletion(team: Tenant, argo: ArgoEngine) -> None:
    """All that is there of it belongs to it and says so; its end, its lines and its events can be told."""
    job = submitted(argo, compiled(COUNT, learners=2))
    lines: list[tuple[str, str]] = []
    follower = threading.Thread(target=lambda: lines.extend((x.source, x.text) for x in argo.logs(job, follow=True)))
    follower.start()
    statuses = [status.state for status in argo.watch(job)]
    follower.join(30)
    assert list(dict.fromkeys(statuses)) == ["PENDING", "DOWNLOADING", "PROCESSING", "COMPLETED"] or (
        statuses[-1] == "COMPLETED" and set(statuses) <= {"PENDING", "DOWNLOADING", "PROCESSING", "COMPLETED"}
    )
    said = [(f"learner-{index + 1}", f"{index} says {i}") for index in (0, 1) for i in (1, 2, 3)]
    assert sorted(lines) == said
    times = [(line.time, line.text) for line in argo.logs(job)]
    assert [text for _, text in times] == [text for _, text in sorted(times)]
    assert sorted((line.source, line.text) for line in argo.logs(job)) == said
    assert [line.text for line in argo.logs(job, learner=2, tail=1)] == ["1 says 3"]
    assert [line.text for line in argo.logs(job, step="download", attempt=1)] == ["downloading"]
    third = next(moment for moment, text in times if text == "0 says 3")
    assert [line.text for line in argo.logs(job, learner=1, since=third)] == ["0 says 3"]
    assert list(argo.logs(job, attempt=2)) == []
    happened = [(event.source, event.reason) for event in argo.events(job)]
    assert happened.index(("learner-1", "Scheduled")) < happened.index(("learner(0:0)", "RetrySucceeded"))

    workflow = argo.workflow(job)
    owned = (team.api.get("configmaps", job), team.api.get("configmaps", job + STATUS), team.api.get("secrets", job))
    for found in owned:
        assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [workflow["metadata"]["uid"]]
    record = team.api.get("configmaps", job + RECORD)
    assert "ownerReferences" not in record["metadata"]
    store = team.api.get("secrets", f"{job}-store")
    assert [owner["uid"] for owner in store["metadata"]["ownerReferences"]] == [record["metadata"]["uid"]]
    for found in (*owned, record, store, workflow):
        assert found["metadata"]["labels"][contract.LABEL_JOB] == job
    assert len(base64.b64decode(owned[2]["data"]["token"])) == 48
    assert json.loads(record["data"]["job"])["command"] == ""

    began = time.monotonic()
    argo.delete(job)
    assert time.monotonic() - began < 20
    assert team.api.list("pods", f"{contract.LABEL_JOB}={job}") == []
    for call in (argo.status, argo.workflow, argo.delete, argo.halt, argo.logs, argo.metrics, argo.events):
        with pytest.raises(NoSuchJob, match=f"no job {job}; `ffdl list -a` shows all"):
            call(job)


def test_a_pod_that_argo_has_lost_sight_of_goes_too(team: Tenant, argo: ArgoEngine) -> None:
    """A controller that keeps pods until it has seen their end may miss one; it would be let go minutes later."""
    job = submitted(argo, compiled("sleep 60"))
    until(argo, job, "PROCESSING")
    for pod in team.api.list("pods", f"{contract.LABEL_JOB}={job}"):
        team.api.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": [FINALIZER]}})
    argo.delete(job)
    assert team.api.list("pods", f"{contract.LABEL_JOB}={job}") == []


def test_a_submission_that_fails_leaves_nothing(team: Tenant, argo: ArgoEngine) -> None:
    """Half a job would hold a name, a volume and credentials that nobody asked for."""
    job = compiled(COUNT)
    job.secrets["-store"]["not a key"] = b""
    with pytest.raises(EngineError, match="the cluster does not take it: could not create Secret training-"):
        submitted(argo, job)
    assert argo.ids() == []
    assert objects(team) == set()


def test_a_submission_that_was_interrupted_is_seen_and_goes_with_delete(team: Tenant, argo: ArgoEngine) -> None:
    """A laptop that is closed at the wrong moment must not leave what nobody can name."""
    job = new_job_id()
    workflow = compiled(COUNT).workflow
    metadata = {**workflow["metadata"], "name": job, "labels": {contract.LABEL_JOB: job}}
    body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata}
    team.api.create("workflows", body | {"spec": {**workflow["spec"], "suspend": True}})
    status = argo.status(job)
    assert (status.state, status.reason) == ("NOT_STARTED", "its submission has not been completed")
    assert [entry.id for entry in argo.list()] == [job]
    argo.delete(job)


def test_an_id_is_taken_once(argo: ArgoEngine) -> None:
    """A step of a pipeline that is tried again must find its job, not start a second one."""
    job = submitted(argo, compiled("sleep 60"))
    with pytest.raises(Refused, match=f"there is a job {job} already"):
        argo.submit(compiled(COUNT), job)
    assert argo.status(job).state == "PENDING"


def test_what_the_namespace_forbids_is_refused_before_anything_is_made(team: Tenant, argo: ArgoEngine) -> None:
    """The alternative is a job that waits for ever, with a reason that only administrators understand."""
    volume = {"name": "host-data", "hostPath": {"path": "/srv/data"}}
    with pytest.raises(Refused, match="host path /srv/data is not among those that this namespace allows"):
        submitted(argo, compiled(COUNT, volumes=[volume]))
    with pytest.raises(Refused, match=r"the code is 0.8 MB packed; .* this manifest keeps no results"):
        submitted(argo, compiled(COUNT, code=bytes(800_000), results=False))
    assert objects(team) == set()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"version": "2"}, r"set up by a newer ffdl \(argo-config version 2, this command knows 1\); install"),
        ({"version": "0"}, r"set up by an older ffdl \(argo-config version 0\); apply this version's argo-config"),
        ({"ttl": "long"}, "ttl is 'long', not a duration"),
    ],
)
def test_settings_of_another_version_say_what_to_do(team: Tenant, data: dict[str, str], words: str) -> None:
    """Who upgrades one side must not be left with jobs that fail for reasons of the other."""
    before = team.api.get("configmaps", "ffdl-tenant")["data"]
    with changed_settings(team, {**before, **data}), pytest.raises(Refused, match=words):
        submitted(engine(team), compiled(COUNT))


@contextlib.contextmanager
def changed_settings(team: Tenant, data: dict[str, str]) -> Iterator[None]:
    before = team.api.get("configmaps", "ffdl-tenant")["data"]
    team.cluster.kubectl("patch", "configmap", "ffdl-tenant", "-n", team.namespace, "-p", json.dumps({"data": data}))
    try:
        yield
    finally:
        team.cluster.kubectl(
            "patch", "configmap", "ffdl-tenant", "-n", team.namespace, "-p", json.dumps({"data": before})
        )


def test_a_namespace_that_is_no_tenant_says_so(team: Tenant) -> None:
    """`default` is where kubectl points until told otherwise."""
    nowhere = ArgoEngine("default", kubeconfig=str(team.cluster.place.kubeconfig))
    with pytest.raises(Refused, match=r"namespace default is not made for jobs: .* name another namespace with -n"):
        submitted(nowhere, compiled(COUNT))
    with pytest.raises(EngineError, match=r"tester may not list .* in namespace default; ask for the Role ffdl-user"):
        ArgoEngine("default", kubeconfig=str(team.kubeconfig)).list()


def test_a_job_without_a_helper_is_halted_all_the_same(team: Tenant, argo: ArgoEngine) -> None:
    """The helper may have died just now: the GPUs must be free, the learners have had their signal to save."""
    job = submitted(argo, compiled("trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.1; done"))
    assert next(argo.logs(job, follow=True)).text == "ready"
    argo.halt(job, timeout=60)
    assert argo.status(job).state == "HALTED"
    assert [
        pod for pod in team.api.list("pods", f"{contract.LABEL_JOB}={job}") if pod["status"]["phase"] == "Running"
    ] == []
    argo.resume(job)
    until(argo, job, "PROCESSING")
    assert argo.status(job).attempts == 2
    argo.stop(job)
    until(argo, job, "FAILED")
    assert argo.status(job).reason == "stopped"
    for call in (argo.halt, argo.resume, argo.stop):
        with pytest.raises(Refused, match=f"{job} is FAILED: there is nothing to "):
            call(job)


def test_a_halted_job_that_is_stopped_ends(argo: ArgoEngine) -> None:
    """A Workflow that is stopped while it is suspended would never end."""
    job = submitted(argo, compiled("sleep 60"))
    argo.halt(job, timeout=60)
    argo.stop(job)
    until(argo, job, "FAILED")


def test_a_job_runs_again_with_a_token_of_its_own(team: Tenant, argo: ArgoEngine) -> None:
    """The same files and credentials; who knew the one job's token must not be able to join the other."""
    first, second = submitted(argo, compiled("echo again; exit 3")), new_job_id()
    until(argo, first, "FAILED")
    argo.resubmit(first, second)
    until(argo, second, "FAILED")
    assert argo.status(second).exit_code == 3
    assert [line.text for line in argo.logs(second)] == ["again"]
    old, new = team.api.get("secrets", first)["data"], team.api.get("secrets", second)["data"]
    assert old["token"] != new["token"]
    assert old["env.json"] == new["env.json"]
    assert team.api.get("configmaps", first)["binaryData"] == team.api.get("configmaps", second)["binaryData"]
    assert first not in json.dumps(team.api.get("workflows", second)["spec"]), "its pods are given the other one's"
    assert team.api.get("secrets", f"{second}-store")["data"] == team.api.get("secrets", f"{first}-store")["data"]


def test_why_a_pod_does_not_start_is_told_though_no_node_says_it(argo: ArgoEngine) -> None:
    """A volume that can't be mounted is told in the pod's events alone; users look at `ffdl list`."""
    volume = {"name": "none", "secret": {"secretName": "no-such-secret"}}
    job = submitted(argo, mounting(compiled(COUNT), volume))
    until(argo, job, "PENDING")
    began = time.monotonic()
    reasons = (entry.reason for entry in argo.watch(job, 60))
    reason = next(reason for reason in reasons if "no-such-secret" in reason)
    assert reason.startswith('FailedMount: MountVolume.SetUp failed for volume "none" : secret "no-such-secret"')
    assert time.monotonic() - began < 30
    assert [entry.reason for entry in argo.list()] == [reason]


def mounting(job: Compiled, volume: dict[str, Any]) -> Compiled:
    download = next(t for t in job.workflow["spec"]["templates"] if t["name"] == "download")
    download["container"]["volumeMounts"] = [{"name": volume["name"], "mountPath": "/none"}]
    job.workflow["spec"]["volumes"] = [volume]
    return job


def test_a_job_is_followed_over_connections_that_break(team: Tenant, argo: ArgoEngine, tmp_path: Path) -> None:
    """Laptops sleep, load balancers restart: no line may be missing or come twice, and the end must be heard of."""
    job = submitted(argo, compiled("for i in $(seq 120); do echo line $i; sleep 0.1; done"))
    with way(team.kubeconfig, tmp_path) as (path, kubeconfig):
        elsewhere = ArgoEngine(team.namespace, kubeconfig=str(kubeconfig))
        lines, cuts, last = [], 0, time.monotonic()
        for line in elsewhere.logs(job, follow=True):
            lines.append(line.text)
            if time.monotonic() - last > 2:
                path.cut()
                cuts, last = cuts + 1, time.monotonic()
        until(elsewhere, job, "COMPLETED")
    assert lines == [f"line {i}" for i in range(1, 121)]
    assert cuts >= 3


def test_jobs_of_a_namespace_are_followed_together(team: Tenant, argo: ArgoEngine) -> None:
    """`ffdl list -w`: jobs that come, change and go while one looks; the newest is told first."""
    first = submitted(argo, compiled("sleep 60"))
    changes = argo.watch(timeout=60)
    assert next(changes).id == first
    second = submitted(argo, compiled("true"))
    assert any(entry.id == second and entry.state == "COMPLETED" for entry in changes)
    submitted_at = {job: team.api.get("workflows", job)["metadata"]["creationTimestamp"] for job in (first, second)}
    newest_first = sorted(submitted_at, key=lambda job: (submitted_at[job], job), reverse=True)  # in whole seconds
    assert list(argo.ids()) == newest_first
    assert [entry.id for entry in argo.list()] == newest_first
    argo.delete(first)
