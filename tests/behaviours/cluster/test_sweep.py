"""The sweep on a real cluster: with the rights of its own account it does what nobody inside a job can."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ffdl.engines.argo.access import Api
from ffdl.engines.argo.connection import connect
from ffdl.engines.argo.sweeping import sweep_namespace
from ffdl.engines.sweep import Action
from ffdl.learner import contract
from ffdl.workflows.site import Site
from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.tenant import Tenant

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def account(neighbours: Tenant, tmp_path: Path) -> Path:
    """A kubeconfig of the sweep's own service account."""
    kubectl, namespace = neighbours.cluster.kubectl, neighbours.namespace
    kubectl("patch", "cronworkflow", "ffdl-sweep", "-n", namespace, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    token = kubectl("create", "token", "ffdl-sweep", "-n", namespace).strip()
    config = json.loads(neighbours.kubeconfig.read_text())
    for entry in config["users"]:
        entry["user"] = {"token": token}
    path = tmp_path / "sweep.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def sweep(account: Path, later: float = 0.0) -> list[tuple[Action, str]]:
    """As the CronWorkflow does it, `later` seconds from now."""
    return list(sweep_namespace(Api(connect(kubeconfig=str(account))), Site(), time.time() + later))


def test_a_submission_that_was_never_completed_goes_with_all_of_it(neighbour: ClusterUser, account: Path) -> None:
    """The command was killed after the first of its objects."""
    job = "training-unborn0000"
    labels = {contract.LABEL_JOB: job}
    neighbour.api.create("workflows", _suspended(job, labels))
    record = {"metadata": {"name": f"{job}-record", "labels": {**labels, contract.LABEL_RECORD: "true"}}, "data": {}}
    neighbour.api.create("configmaps", record)
    assert sweep(account) == []
    assert [(type(action).__name__, error) for action, error in sweep(account, HOUR + 60)] == [("DeleteJob", "")]
    neighbour.wait_for(lambda: neighbour.leftovers() == [], "the end of it")


def test_a_job_whose_helper_cannot_start_is_ended_while_nobody_looks(neighbour: ClusterUser, account: Path) -> None:
    """The submitter has gone home: the GPUs that its learners hold must be free in the morning."""
    neighbour.api.patch("configmaps", "ffdl-tenant", {"data": {"tag": "no-such-tag"}})
    job = neighbour.train(neighbour.command("true", start_timeout="5s"))

    def stopped() -> bool:
        return any(type(action).__name__ == "StopJob" and not error for action, error in sweep(account))

    neighbour.wait_for(stopped, "the sweep's stop", 60)
    assert "no-such-tag" in neighbour.failed(job, 60)


def test_records_stay_as_long_as_the_settings_say(neighbour: ClusterUser, account: Path) -> None:
    """How a job ended is noted by the sweep if nobody looked; the record goes when its time is over."""
    job = neighbour.train(neighbour.command("true"))
    neighbour.wait_for(lambda: _phase(neighbour, job) == "Succeeded", f"the end of {job}", 120)
    assert sweep(account) == []
    noted = json.loads(neighbour.api.get("configmaps", f"{job}-record")["data"]["status"])
    assert noted["state"] == "COMPLETED"
    assert sweep(account, 89 * DAY) == []
    neighbour.api.delete("workflows", job)
    assert sweep(account, 89 * DAY) == []
    assert [type(action).__name__ for action, _ in sweep(account, 91 * DAY)] == ["DeleteRecord"]


def test_the_cluster_runs_it_by_itself(neighbours: Tenant) -> None:
    """As often as argo-config says, in the image of the steps, with no right to anything else."""
    kubectl, namespace = neighbours.cluster.kubectl, neighbours.namespace
    every = json.dumps({"spec": {"schedules": ["* * * * *"]}})
    kubectl("patch", "cronworkflow", "ffdl-sweep", "-n", namespace, "--type=merge", "-p", every)
    deadline = time.monotonic() + 150
    found: list[str] = []
    while "Succeeded" not in found and time.monotonic() < deadline:
        sweeps = neighbours.api.list("workflows", "workflows.argoproj.io/cron-workflow=ffdl-sweep")
        found = [(workflow.get("status") or {}).get("phase", "") for workflow in sweeps]
        assert not {"Failed", "Error"} & set(found), sweeps
        time.sleep(1)
    assert "Succeeded" in found


def _phase(user: ClusterUser, job: str) -> str:
    return str((user.api.get("workflows", job).get("status") or {}).get("phase", ""))


def _suspended(job: str, labels: dict[str, str]) -> dict[str, object]:
    template = {"name": "main", "suspend": {}}
    return {
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": job, "labels": labels},
        "spec": {"suspend": True, "entrypoint": "main", "templates": [template]},
    }  # fmt: skip
