"""Is the namespace what argo-config/tenant makes of one, and may everyone in it what they must?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...workflows.site import CONFIG_NAME, CONFIG_VERSION, Site, SiteError
from ..finding import NOTE, OK, PROBLEM, UNSEEN, Finding
from . import packaged
from .access import Api, Object
from .looking import Unseen, look, path_of, review

USER_ROLE = "ffdl-user"
TOPIC = "tenant"
AUTHORIZATION = "authorization.k8s.io/v1"
# what an administrator decides for a tenant: another value there is no fault
OWN_DECISIONS = ("Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy", "PersistentVolumeClaim", "CronWorkflow")


def check(api: Api) -> Iterator[Finding]:
    """The objects, and what the accounts may do. Raises EngineError if the cluster stops to answer."""
    there = True
    for finding in _objects(api):
        there = there and finding.words != no_namespace(api)
        yield finding
    if there:
        yield from check_user(api)
        yield from check_accounts(api)


def no_namespace(api: Api) -> str:
    """What is found then, and ends all checking."""
    return f"Namespace {api.namespace} is missing"


def _objects(api: Api) -> Iterator[Finding]:
    command = packaged.apply_command(packaged.TENANT, api.namespace)
    unseen, matching = [], 0
    for wanted in packaged.objects(packaged.TENANT, api.namespace):
        name = f"{wanted['kind']} {wanted['metadata']['name']}"
        try:
            found = look(api, path_of(wanted))
        except Unseen:
            unseen.append(wanted["kind"])
            continue
        problems = list(_compared(wanted, found, name, command))
        yield from problems
        matching += not problems
        if wanted["kind"] == "Namespace" and found is None:
            return
    if matching:
        yield Finding(TOPIC, OK, f"{matching} objects of namespace {api.namespace} are as argo-config/tenant has them")
    if unseen:
        kinds = ", ".join(dict.fromkeys(unseen))
        words = f"you may not look at {len(unseen)} objects ({kinds}); an administrator's `ffdl doctor` can"
        yield Finding(TOPIC, UNSEEN, words)


def _compared(wanted: Object, found: Object | None, name: str, command: str) -> Iterator[Finding]:
    if found is None:
        state = NOTE if wanted["kind"] == "NetworkPolicy" else PROBLEM
        yield Finding(TOPIC, state, f"{name} is missing", command)
        return
    if name == f"ConfigMap {CONFIG_NAME}":
        yield from config(found.get("data") or {}, command)
        return
    if wanted["kind"] == "Role":
        if lacking := [rule for rule in _grants(wanted) if rule not in set(_grants(found))]:
            yield Finding(TOPIC, PROBLEM, f"{name} does not allow to {_said(lacking)}", command)
        return
    parts = {key: wanted[key] for key in wanted if key not in ("apiVersion", "kind", "metadata")}
    if wanted["kind"] == "Namespace":
        parts = {"metadata": {"labels": wanted["metadata"]["labels"]}}
    if differing := list(packaged.differences(parts, found)):
        own = wanted["kind"] in OWN_DECISIONS
        words = f"{name}: {'; '.join(differing)}" + (" (fine if that was meant)" if own else "")
        yield Finding(TOPIC, NOTE if own else PROBLEM, words, "" if own else command)
    yield from _condition(wanted["kind"], found, name)


def _condition(kind: str, found: Object, name: str) -> Iterator[Finding]:
    """What is as it was applied and still does not work."""
    if kind == "Secret" and not (found.get("data") or {}).get("token"):
        words = f"{name} holds no token: its ServiceAccount is missing, or the cluster's token controller does not run"
        yield Finding(TOPIC, PROBLEM, words)
    elif kind == "PersistentVolumeClaim" and (found.get("status") or {}).get("phase") != "Bound":
        words = f"{name} is not bound: no storage class gives it a ReadWriteMany volume"
        described = f"kubectl -n {found['metadata']['namespace']} describe pvc {found['metadata']['name']}"
        yield Finding(TOPIC, PROBLEM, words, described)
    elif kind == "CronWorkflow" and found["spec"].get("suspend"):
        yield Finding(TOPIC, NOTE, f"{name} is suspended: jobs that can never start are not ended while nobody looks")


def config(data: dict[str, str], command: str) -> Iterator[Finding]:
    """The tenant's settings: of a version that this ffdl knows, and with values that mean something."""
    try:
        site = Site.from_config(data)
    except SiteError as error:
        yield Finding(TOPIC, PROBLEM, str(error))
        return
    if site.version > CONFIG_VERSION:
        words = f"its argo-config has version {site.version}, this ffdl knows {CONFIG_VERSION}"
        yield Finding(TOPIC, PROBLEM, words, "install a newer ffdl: pip install --upgrade ffdl")
    elif site.version < CONFIG_VERSION:
        words = f"its argo-config has version {site.version}, this ffdl has {CONFIG_VERSION}"
        yield Finding(TOPIC, PROBLEM, words, command)


def check_user(api: Api) -> Iterator[Finding]:
    """Whether whoever asks may do what a user must."""
    role = _packaged_role(api, USER_ROLE)
    lacking = [grant for grant in _grants(role) if not _allowed(api, "SelfSubjectAccessReview", grant)]
    if lacking:
        bind = f"kubectl -n {api.namespace} create rolebinding NAME --role={USER_ROLE} --user=NAME"
        yield Finding("permissions", PROBLEM, f"you may not {_said(lacking)} in namespace {api.namespace}", bind)
    else:
        yield Finding("permissions", OK, f"you may do all that a user must in namespace {api.namespace}")


def check_accounts(api: Api) -> Iterator[Finding]:
    """Whether the service accounts of jobs may do what they must, whatever gives them the right."""
    fine = True
    for wanted in packaged.objects(packaged.TENANT, api.namespace):
        if wanted["kind"] != "RoleBinding":
            continue
        account = wanted["subjects"][0]["name"]
        user = f"system:serviceaccount:{api.namespace}:{account}"
        role = _packaged_role(api, wanted["roleRef"]["name"])
        try:
            lacking = [grant for grant in _grants(role) if not _allowed(api, "SubjectAccessReview", grant, user=user)]
        except Unseen:
            yield Finding("permissions", UNSEEN, "you may not ask what the service accounts may do")
            return
        if lacking:
            fine = False
            command = packaged.apply_command(packaged.TENANT, api.namespace)
            yield Finding("permissions", PROBLEM, f"service account {account} may not {_said(lacking)}", command)
    if fine:
        yield Finding("permissions", OK, "the service accounts may do what they must")


def _packaged_role(api: Api, name: str) -> Object:
    roles = packaged.objects(packaged.TENANT, api.namespace)
    return next(role for role in roles if role["kind"] == "Role" and role["metadata"]["name"] == name)


def _grants(role: Object) -> list[tuple[str, str, str]]:
    return [
        (verb, group, resource)
        for rule in role.get("rules") or ()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def _allowed(api: Api, kind: str, grant: tuple[str, str, str], **who: str) -> bool:
    verb, group, resource = grant
    resource, _, part = resource.partition("/")
    attributes: dict[str, Any] = {"namespace": api.namespace, "verb": verb, "group": group, "resource": resource}
    if part:
        attributes["subresource"] = part
    return review(api, kind, AUTHORIZATION, {"resourceAttributes": attributes, **who}).get("allowed") is True


def _said(grants: list[tuple[str, str, str]]) -> str:
    """`get and list pods, create secrets`."""
    verbs: dict[str, list[str]] = {}
    for verb, _, resource in grants:
        verbs.setdefault(resource, []).append(verb)
    return "; ".join(f"{_listed(of)} {resource}" for resource, of in verbs.items())


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
