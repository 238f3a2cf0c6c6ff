"""`ffdl doctor` on a real cluster: quiet where all is well, and otherwise a command that mends it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.tenant import Tenant


def findings(user: ClusterUser, *arguments: str, code: int, **env: str) -> list[dict[str, Any]]:
    user.env.update(env)
    found: list[dict[str, Any]] = json.loads(user.ffdl("doctor", "-o", "json", *arguments, code=code).stdout)
    assert [finding for finding in found if finding["state"] == "problem"] or code == 0
    return found


def as_administrator(tenant: Tenant) -> dict[str, str]:
    return {"KUBECONFIG": str(tenant.cluster.place.kubeconfig), "FFDL_NAMESPACE": tenant.namespace}


def problems(found: list[dict[str, Any]]) -> list[str]:
    return [finding["words"] for finding in found if finding["state"] == "problem"]


@pytest.mark.smoke
def test_a_sound_cluster_has_no_problem_for_anyone(user: ClusterUser) -> None:
    """The administrator sees all of it checked; a user what they may see, and that jobs start. Nothing stays behind."""
    of_user = findings(user, code=0)
    assert "unseen" in {finding["state"] for finding in of_user}
    trial = [finding["words"] for finding in of_user if finding["topic"] == "trial"]
    assert any("names resolve" in words for words in trial), trial
    of_administrator = findings(user, code=0, **as_administrator(user.tenant))
    assert {finding["topic"] for finding in of_administrator} >= {"cluster", "argo", "controller", "tenant", "storage"}
    assert not [finding for finding in of_administrator if finding["state"] == "unseen"]

    def left() -> list[str]:
        names = [found["metadata"]["name"] for kind in ("workflows", "pods") for found in user.api.list(kind)]
        return [name for name in names if name.startswith("ffdl-doctor")]

    user.wait_for(lambda: not left(), "the end of what doctor made")


def test_what_is_missing_is_told_with_a_command_that_mends_it(neighbours: Tenant, tmp_path: Path) -> None:
    """Nobody has to know the files: the command that is printed is run as it stands."""
    user = ClusterUser(tmp_path, neighbours)
    neighbours.api.delete("serviceaccounts", "ffdl-helper")
    kubectl = neighbours.cluster.kubectl
    kubectl("delete", "rolebinding", "ffdl-executor", "-n", neighbours.namespace)
    found = findings(user, "--quick", code=4, **as_administrator(neighbours))
    said = problems(found)
    assert any("ServiceAccount ffdl-helper is missing" in words for words in said), said
    assert any("ffdl-executor may not create and patch workflowtaskresults" in words for words in said), said
    (remedy,) = {finding["remedy"] for finding in found if finding["state"] == "problem"}
    path = f"{neighbours.cluster.place.tools}:{Path(os.sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", remedy], env={**user.env, "PATH": path}, check=True, capture_output=True)
    assert problems(findings(user, "--quick", code=0)) == []


def test_an_image_that_is_not_there_is_told_in_the_clusters_words(neighbours: Tenant, tmp_path: Path) -> None:
    """The most common fault of a new installation; no other check can see it."""
    user = ClusterUser(tmp_path, neighbours)
    neighbours.api.patch("configmaps", "ffdl-tenant", {"data": {"tag": "no-such-tag"}})
    found = findings(user, "--timeout", "60s", code=4)
    assert all("no-such-tag" in words for words in problems(found)), problems(found)
    assert any("ffdl images build" in finding["remedy"] for finding in found)


def test_settings_of_a_later_version_are_refused_by_name(neighbours: Tenant, tmp_path: Path) -> None:
    """An old ffdl on somebody's laptop must say that it is old."""
    user = ClusterUser(tmp_path, neighbours)
    neighbours.api.patch("configmaps", "ffdl-tenant", {"data": {"version": "99"}})
    (finding,) = [f for f in findings(user, "--quick", code=4) if f["state"] == "problem"]
    assert "version 99" in finding["words"]
    assert "pip install --upgrade ffdl" in finding["remedy"]


def test_an_administrators_own_decisions_are_no_problem(neighbours: Tenant, tmp_path: Path) -> None:
    """Another quota is what a quota is for; applying argo-config again keeps it, too."""
    user = ClusterUser(tmp_path, neighbours)
    change = {"spec": {"hard": {"requests.nvidia.com/gpu": "2"}}}
    neighbours.api.patch("resourcequotas", "ffdl", change)
    found = findings(user, "--quick", code=0, **as_administrator(neighbours))
    assert [finding["state"] for finding in found if "nvidia.com/gpu is 2" in finding["words"]] == ["note"]


def test_a_person_without_rights_is_told_which(neighbours: Tenant, tmp_path: Path) -> None:
    """And what their administrator is to do about it."""
    user = ClusterUser(tmp_path, neighbours)
    neighbours.cluster.kubectl("delete", "rolebinding", "tester", "-n", neighbours.namespace)
    found = findings(user, "--quick", code=4)
    (finding,) = [f for f in found if f["topic"] == "permissions" and f["state"] == "problem"]
    assert "create, get, list, watch, patch and delete workflows" in finding["words"]
    assert "create rolebinding" in finding["remedy"]
