"""Who may do what in a tenant, asked of the API server that decides it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.kubernetes_api import ApiError
from tests.behaviours.tenant import Tenant, tenant
from tests.behaviours.test_examples import DIGITS, accuracies

NOT = {  # account -> what would let whoever takes over one of its pods reach further
    "ffdl-executor": [
        "get pods", "list pods", "create pods", "patch pods", "get secrets", "list secrets", "get workflows",
        "patch workflows", "get configmaps", "create pods/exec", "delete services", "list workflowtaskresults",
    ],
    "ffdl-helper": [
        "get secrets", "list secrets", "create pods", "patch pods", "create pods/exec", "get pods/exec", "get pods/log",
        "create workflows", "delete workflows", "list configmaps", "delete configmaps", "create events",
    ],
    "ffdl-sweep": [
        "get secrets", "list secrets", "create pods", "patch pods", "create pods/exec", "create workflows",
        "create configmaps", "delete persistentvolumeclaims",
    ],
    "ffdl-task": ["list secrets", "create roles", "patch secrets"],
    "tester": [
        "list secrets", "patch secrets", "create roles", "create rolebindings", "patch resourcequotas",
        "delete resourcequotas", "delete persistentvolumeclaims", "patch networkpolicies", "create serviceaccounts",
        "create cronworkflows", "impersonate serviceaccounts",
    ],
}  # fmt: skip
GROUPS = {
    "workflows": "argoproj.io", "cronworkflows": "argoproj.io", "workflowtaskresults": "argoproj.io",
    "roles": "rbac.authorization.k8s.io", "rolebindings": "rbac.authorization.k8s.io",
    "networkpolicies": "networking.k8s.io",
}  # fmt: skip


def allowed(tenant: Tenant, account: str, what: str, namespace: str) -> bool:
    verb, _, resource = what.partition(" ")
    resource, _, part = resource.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "resource": resource, "group": GROUPS.get(resource, "")}
    user = f"system:serviceaccount:{tenant.namespace}:{account}"
    body = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {**attributes, "subresource": part}},
    }  # fmt: skip
    answer = json.loads(tenant.api.call("POST", "apis/authorization.k8s.io/v1/subjectaccessreviews", body))
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("account", NOT)
def test_an_account_may_do_no_more_than_its_work(user: ClusterUser, account: str) -> None:
    """A learner's neighbour in its pod is Argo's executor; a helper is spoken to by user code."""
    tenant = user.tenant
    assert [what for what in NOT[account] if allowed(tenant, account, what, tenant.namespace)] == []


@pytest.mark.parametrize("account", NOT)
def test_nobody_reaches_another_namespace(user: ClusterUser, account: str) -> None:
    """Tenants are apart: neither `ffdl`, nor the namespace of Argo, nor the cluster itself."""
    for namespace in ("ffdl", "argo", "kube-system", ""):
        for what in ("get pods", "list workflows", "get configmaps", "create pods", "get secrets", "get nodes"):
            assert not allowed(user.tenant, account, what, namespace), f"{account} may {what} in {namespace!r}"


def test_a_pod_that_breaks_the_tenants_rules_is_refused(user: ClusterUser) -> None:
    """Whoever may create pods may not make one that owns the node."""
    spec = {"containers": [{"name": "m", "image": user.image, "securityContext": {"privileged": True}}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "owns-the-node"}, "spec": spec}
    with pytest.raises(Exception, match="violates PodSecurity"):
        user.api.create("pods", body, dryRun="All")


def test_a_job_keeps_to_the_restricted_standard(tmp_path: Path) -> None:
    """Many clusters take no other pods: learners that meet, a halt, a resume and the results must do with that."""
    with tenant("ffdl-strict", options=["restricted"]) as strict:
        user = ClusterUser(tmp_path, strict)
        spec = {"containers": [{"name": "m", "image": user.image}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "as-any-other"}, "spec": spec}
        with pytest.raises(ApiError, match="violates PodSecurity"):  # which the baseline takes
            strict.api.create("pods", body, dryRun="All")
        job = user.train(DIGITS / "peers.yml", "--set", "learners=2", "--set", "env.EPOCHS='40'")
        user.until_step(job, 30)  # of 22 an epoch
        user.ffdl("halt", job)
        assert user.ffdl("status", job).stdout.strip() == "HALTED"
        assert user.running() == []
        user.ffdl("resume", job)
        first, second = accuracies(user, job)
        assert first == second > 0.9
        said = user.ffdl("logs", job).stdout
        assert (said.count("epoch 1/40"), said.count("epoch 40/40")) == (2, 2)  # neither began anew
