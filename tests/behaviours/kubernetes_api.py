"""A look at the cluster from outside, as its administrator: plain calls, no help from what is tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

Object = dict[str, Any]
PATHS = {  # kind -> where a namespace has them
    "pods": "api/v1", "configmaps": "api/v1", "secrets": "api/v1", "services": "api/v1", "events": "api/v1",
    "persistentvolumeclaims": "api/v1", "resourcequotas": "api/v1", "serviceaccounts": "api/v1",
    "workflows": "apis/argoproj.io/v1alpha1", "workflowtemplates": "apis/argoproj.io/v1alpha1",
    "workflowtaskresults": "apis/argoproj.io/v1alpha1", "cronworkflows": "apis/argoproj.io/v1alpha1",
}  # fmt: skip
PATCH = "application/merge-patch+json"


class ApiError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Calls with the credentials of a kubeconfig file; those that name a kind are in `namespace`."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject
        from kubernetes.config import load_kube_config

        self.kubeconfig, self.namespace = kubeconfig, namespace
        self._configuration = Configuration()
        load_kube_config(str(kubeconfig), client_configuration=self._configuration)
        self._pool = RESTClientObject(self._configuration).pool_manager

    def call(self, method: str, path: str, body: Object | None = None, content: str = "", **query: str) -> str:
        settings = self._configuration.auth_settings().values()
        headers = {setting["key"]: setting["value"] for setting in settings}
        headers["Content-Type"] = content or "application/json"
        url = f"{self._configuration.host}/{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body)
        retries = urllib3.Retry(3, status=0, redirect=0)
        answer = self._pool.request(method, url, body=data, headers=headers, timeout=30, retries=retries)
        text = answer.data.decode(errors="replace")
        if answer.status >= 300:
            raise ApiError(answer.status, text)
        return text

    def stream(self, path: str, **query: str) -> Iterator[Object]:
        """The answer's lines, one object each, as they come."""
        headers = {setting["key"]: setting["value"] for setting in self._configuration.auth_settings().values()}
        url = f"{self._configuration.host}/{path}?{urlencode(query)}"
        answer = self._pool.request("GET", url, headers=headers, preload_content=False, retries=False)
        if answer.status >= 300:
            raise ApiError(answer.status, answer.data.decode(errors="replace"))
        rest = b""
        for chunk in answer.stream(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, lines)

    def path(self, kind: str, name: str = "") -> str:
        return f"{PATHS[kind]}/namespaces/{self.namespace}/{kind}/{name}".rstrip("/")

    def get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self.call("GET", self.path(kind, name)))
        return found

    def list(self, kind: str, labels: str = "") -> list[Object]:
        query = {"labelSelector": labels} if labels else {}
        found: list[Object] = json.loads(self.call("GET", self.path(kind), **query)).get("items") or []
        return found

    def create(self, kind: str, body: Object, **query: str) -> Object:
        made: Object = json.loads(self.call("POST", self.path(kind), body, **query))
        return made

    def patch(self, kind: str, name: str, changes: Object) -> None:
        self.call("PATCH", self.path(kind, name), changes, PATCH)

    def delete(self, kind: str, name: str, grace: int | None = None) -> None:
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self.call("DELETE", self.path(kind, name), options)
