"""Checks a cluster against what jobs need there, one thing after the other."""

from __future__ import annotations

from collections.abc import Iterator

from ...workflows.site import CONFIG_NAME, Site, SiteError
from ..base import EngineError
from ..finding import NOTE, OK, PROBLEM, UNSEEN, Finding
from . import controller_check, tenant_check, trial
from .access import CONFIG_MAPS, Api
from .looking import Unseen, look, review

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def examine(api: Api, controller: str = "argo", quick: bool = False, timeout: float = 180.0) -> Iterator[Finding]:
    """Everything that is found, as it is found. `controller` is the namespace of Argo's.

    Unless `quick`, a Workflow is run for up to `timeout` seconds. A cluster that can't be reached is a finding.
    """
    try:
        yield from _cluster(api)
        yield from controller_check.check(api, controller)
        for finding in tenant_check.check(api):
            yield finding
            if finding.words == tenant_check.no_namespace(api):
                return
        yield from _storage(api)
        if not quick:
            yield from _trial(api, timeout)
    except EngineError as error:
        yield Finding("cluster", PROBLEM, str(error))


def _cluster(api: Api) -> Iterator[Finding]:
    version = (look(api, "/version") or {}).get("gitVersion", "of unknown version")
    try:
        user = review(api, "SelfSubjectReview", "authentication.k8s.io/v1", {}).get("userInfo", {}).get("username", "?")
    except Unseen:
        user = "somebody"
    words = f"Kubernetes {version} at {api.connection.place}, as {user}, in namespace {api.namespace}"
    yield Finding("cluster", OK, words)


def _storage(api: Api) -> Iterator[Finding]:
    """Jobs have a volume for several pods, of the cluster's default class."""
    try:
        classes = (look(api, "/apis/storage.k8s.io/v1/storageclasses") or {}).get("items") or []
    except Unseen:
        yield Finding("storage", UNSEEN, "you may not look at storage classes; the trial asks for a volume")
        return
    default = [
        found["metadata"]["name"]
        for found in classes
        if (found["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    ]
    if default:
        yield Finding("storage", OK, f"the default storage class is {default[0]}")
        return
    names = ", ".join(found["metadata"]["name"] for found in classes) or "none at all"
    annotation = f'{{"metadata":{{"annotations":{{"{DEFAULT_CLASS}":"true"}}}}}}'
    words = f"no storage class is the default ({names}); jobs need one that gives ReadWriteMany volumes"
    yield Finding("storage", PROBLEM, words, f"kubectl patch storageclass NAME -p '{annotation}'")


def _trial(api: Api, timeout: float) -> Iterator[Finding]:
    try:
        site = Site.from_config((api.find(CONFIG_MAPS, CONFIG_NAME) or {}).get("data") or {})
    except SiteError:  # told already
        return
    try:
        yield from trial.check(api, site, timeout)
    except EngineError as error:
        yield Finding(trial.TOPIC, NOTE if "may not" in str(error) else PROBLEM, str(error))
