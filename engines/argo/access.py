"""The cluster's API: the few calls that the engine makes, each with a time-out, refusals as one line."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from .connection import Connection
from .errors import ApiError, Unreachable, api_error, unreachable

CONNECT_TIMEOUT, READ_TIMEOUT = 5.0, 30.0  # seconds
PATIENCE = 15.0  # seconds for which a busy server is asked again
PAGE = 500
JSON = "application/json"
MERGE = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
IDEMPOTENT = ("GET", "PATCH", "DELETE")
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of objects, and where the API has them."""

    name: str
    plural: str
    api: str = "v1"

    @property
    def root(self) -> str:
        return f"/api/{self.api}" if "/" not in self.api else f"/apis/{self.api}"


WORKFLOWS = Kind("Workflow", "workflows", "argoproj.io/v1alpha1")
PODS = Kind("Pod", "pods")
CONFIG_MAPS = Kind("ConfigMap", "configmaps")
SECRETS = Kind("Secret", "secrets")
CLAIMS = Kind("PersistentVolumeClaim", "persistentvolumeclaims")
EVENTS = Kind("Event", "events")


class Api:
    """Calls in one namespace. All raise EngineError: ApiError for an answer that is an error, Unreachable for none."""

    def __init__(self, connection: Connection) -> None:
        from kubernetes.client.rest import RESTClientObject

        self.connection = connection
        self.namespace = connection.namespace
        self._pool = RESTClientObject(connection.configuration).pool_manager

    def get(self, kind: Kind, name: str) -> Object:
        return self._json("GET", self.path(kind, name), f"get {kind.name} {name} in namespace {self.namespace}")

    def find(self, kind: Kind, name: str) -> Object | None:
        """As `get`; None if there is no such object."""
        try:
            return self.get(kind, name)
        except ApiError as error:
            if error.status == 404 and error.reason == "NotFound":
                return None
            raise

    def list(self, kind: Kind, labels: str = "", fields: str = "", metadata: bool = False) -> Iterator[Object]:
        """All that match, a page at a time; of each its `metadata` alone if that is enough."""
        for page in self.pages(kind, labels, fields, metadata):
            yield from page["items"] or ()

    def pages(
        self, kind: Kind, labels: str = "", fields: str = "", metadata: bool = False, at_one_time: bool = False
    ) -> Iterator[Object]:
        """The same as the API has them: lists, with the resourceVersion in their metadata.

        A list that takes so long that the cluster forgets its beginning goes on with what is there now; `at_one_time`
        forbids that (ApiError, status 410).
        """
        accept = METADATA.format("List") if metadata else JSON
        query = {"limit": str(PAGE)}
        query |= {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        what = f"list {kind.plural} in namespace {self.namespace}"
        while True:
            try:
                page = self._json("GET", self.path(kind), what, query=query, accept=accept)
            except ApiError as error:
                if error.status != 410 or not error.go_on or at_one_time:
                    raise
                query["continue"] = error.go_on
                continue
            yield page
            more = page["metadata"].get("continue")
            if not more:
                return
            query["continue"] = more

    def create(self, kind: Kind, body: Object) -> Object:
        name = body["metadata"].get("name", "")
        whole = {"apiVersion": kind.api, "kind": kind.name, **body}
        return self._json("POST", self.path(kind), f"create {kind.name} {name} in namespace {self.namespace}", whole)

    def patch(self, kind: Kind, name: str, changes: Object) -> Object:
        """A merge patch: None removes a key."""
        what = f"change {kind.name} {name} in namespace {self.namespace}"
        once = "resourceVersion" in (changes.get("metadata") or {})  # it is to fail where the object has changed
        return self._json("PATCH", self.path(kind, name), what, changes, content=MERGE, once=once)

    def delete(self, kind: Kind, name: str, grace: int | None = None) -> bool:
        """Whether it was there. `grace` in seconds is a pod's."""
        options: Object = {"propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        what = f"delete {kind.name} {name} in namespace {self.namespace}"
        try:
            self._json("DELETE", self.path(kind, name), what, options)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def path(self, kind: Kind, name: str = "", part: str = "") -> str:
        pieces = [kind.root, "namespaces", self.namespace, kind.plural, name, part]
        return "/".join(piece for piece in pieces if piece)

    def _json(
        self,
        method: str,
        path: str,
        what: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
        accept: str = JSON,
        once: bool = False,
    ) -> Object:
        headers = {"Accept": accept, "Content-Type": content}
        data = None if body is None else json.dumps(body).encode()
        answer: Object = json.loads(self._request(method, path, what, query, headers, data, once))
        return answer

    def _request(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        data: bytes | None,
        once: bool,
    ) -> bytes:
        """A busy server is asked again, one that has a fault too where asking twice does no harm; and, unless that is
        to be done `once`, for a change that another one came in between of."""
        deadline, pause, dropped = time.monotonic() + PATIENCE, 0.2, 0
        while True:
            try:
                return self._whole(method, path, what, query, headers, data)
            except ApiError as error:
                again = error.status == 429 or (error.status in (500, 502, 503, 504) and method in IDEMPOTENT)
                again |= error.reason == "Conflict" and method != "GET" and not once
                pause = error.retry_after or pause
                if not again or time.monotonic() + pause > deadline:
                    raise
            except Unreachable as error:  # a connection that was kept may have been closed meanwhile
                dropped += 1
                if not error.dropped or method not in IDEMPOTENT or dropped > 2:
                    raise
            time.sleep(pause * random.uniform(0.9, 1.1))
            pause = min(2 * pause, 5.0)

    def _whole(self, method: str, path: str, what: str, *rest: Any) -> bytes:
        import urllib3

        with self.open(method, path, what, *rest) as response:
            try:
                return bytes(response.read())
            except urllib3.exceptions.HTTPError as error:
                raise unreachable(error, self.connection.place, READ_TIMEOUT) from None

    def open(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        read_timeout: float = READ_TIMEOUT,
    ) -> Any:
        """A response whose body is still to be read, by one who closes it."""
        import urllib3

        url = self.connection.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT, read=read_timeout)
        try:
            response = self._pool.request(
                method,
                url,
                body=data,
                headers={**self.credentials(), **(headers or {})},
                timeout=timeout,
                preload_content=False,
                retries=False,
            )
            if response.status < 300:
                return response
            with response:
                body = response.read()
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error
            waited = CONNECT_TIMEOUT if isinstance(cause, urllib3.exceptions.ConnectTimeoutError) else read_timeout
            raise unreachable(cause, self.connection.place, waited) from None
        after = response.headers.get("Retry-After")
        raise api_error(response.status, body, what, self.connection.place, after)

    def credentials(self) -> dict[str, str]:
        """The headers that say who asks; a token that has run out is renewed."""
        settings = self.connection.configuration.auth_settings().values()
        return {setting["key"]: setting["value"] for setting in settings}
