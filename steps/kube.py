"""A small client of the Kubernetes API, for programs that live as long as a job. Standard library only.

It speaks as the pod's service account, whose token is read for each request: the kubelet replaces it now and then.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from ..learner import contract

TIMEOUT = 10.0  # seconds without a byte from the server
PAGE = 50  # objects of a list that are held at once
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds between two tries
MOST_ASKED = 30.0  # seconds that a server may ask to be left alone for
GONE = 410  # the changes since then are no longer known: list again
_WORKFLOWS = "/apis/argoproj.io/v1alpha1"
_CORE = "/api/v1"
_PASSING = (0, 401, 408, 409, 429, 500, 502, 503, 504)  # 401: a token that was just replaced
Object = dict[str, Any]
T = TypeVar("T")


class KubeError(OSError):
    """What the API server did not do, in one line. `status` is HTTP's, 0 where there was no answer.

    `pause`: seconds that it asks to be left alone for.
    """

    def __init__(self, status: int, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.pause = status, pause

    @property
    def passing(self) -> bool:
        """Trying again may help."""
        return self.status in _PASSING


class Kube:
    """The objects of one namespace, by their plural names. For several threads. Methods raise KubeError."""

    def __init__(self, host: str, port: int, folder: str, namespace: str = "", timeout: float = TIMEOUT) -> None:
        """`folder` holds `token`, `ca.crt` and, where none is given, `namespace`."""
        self._host, self._port, self._folder, self.timeout = host, port, folder, timeout
        self.namespace = namespace or self._file("namespace")
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPSConnection] = []
        self._busy: set[http.client.HTTPSConnection] = set()
        self._closed = False

    @classmethod
    def of_this_pod(cls, timeout: float = TIMEOUT) -> Kube:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise KubeError(0, "KUBERNETES_SERVICE_HOST is not set: this is no pod of a cluster")
        return cls(host, int(port), contract.path(contract.SERVICE_ACCOUNT_DIR), timeout=timeout)

    def get(self, plural: str, name: str) -> Object:
        return self._call("GET", self._path(plural, name))

    def list(self, plural: str, labels: str = "", fields: str = "") -> Iterator[Object]:
        """All that the selectors pick; held a page at a time."""
        for page, _ in self.pages(plural, labels, fields):
            yield from page

    def pages(self, plural: str, labels: str = "", fields: str = "") -> Iterator[tuple[Sequence[Object], str]]:
        """The same, in pages, each with the version to watch from."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        while True:
            page = self._call("GET", self._path(plural), query)
            about = page.get("metadata") or {}
            yield page.get("items") or (), str(about.get("resourceVersion") or "")
            if not about.get("continue"):
                return
            query["continue"] = about["continue"]

    def create(self, plural: str, body: Object) -> Object:
        return self._call("POST", self._path(plural), body=body)

    def patch(self, plural: str, name: str, body: Object) -> Object:
        """A merge patch. With `metadata.resourceVersion` in it, status 409 if the object has changed since."""
        return self._call("PATCH", self._path(plural, name), body=body)

    def delete(self, plural: str, name: str, grace: int | None = None, uid: str = "") -> None:
        """Deletes it, if it is still there; with `uid` only the one that has it. `grace` in seconds."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._call("DELETE", self._path(plural, name), body=options)
        except KubeError as error:
            if error.status != 404 and not (uid and error.status == 409):
                raise

    def watch(
        self, plural: str, version: str, seconds: float, labels: str = "", fields: str = ""
    ) -> Iterator[tuple[str, Object]]:
        """(ADDED, MODIFIED, DELETED or BOOKMARK, object) for each change since `version`, for `seconds`.

        The server says a word (a bookmark) before it ends the stream. Status GONE: list again.
        """
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query |= {"labelSelector": labels, "fieldSelector": fields, "timeoutSeconds": str(max(1, round(seconds)))}
        with self._answer("GET", self._path(plural), query, None, seconds + self.timeout) as answer:
            while line := answer.readline():
                event = _parsed(line)
                found = event.get("object") or {}
                if event.get("type") == "ERROR":
                    raise _error(int(found.get("code") or 500), found)
                yield str(event.get("type")), found

    def close(self) -> None:
        """Ends whatever another thread waits for."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                if connection.sock is not None:
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
        for connection in idle:
            connection.close()

    # --- one request ----------------------------------------------------------------------------------------------

    def _path(self, plural: str, name: str = "") -> str:
        group = _WORKFLOWS if plural == "workflows" else _CORE
        return f"{group}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def _call(self, method: str, path: str, query: dict[str, str] | None = None, body: Object | None = None) -> Object:
        with self._answer(method, path, query or {}, body, self.timeout) as answer:
            return _parsed(answer.read())

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, query: dict[str, str], body: Object | None, timeout: float
    ) -> Iterator[http.client.HTTPResponse]:
        connection, answer = None, None
        try:
            connection, answer = self._request(method, path, query, body, timeout)
            if answer.status >= 300:
                raise _error(answer.status, _parsed(answer.read(), strict=False), answer.getheader("Retry-After"))
            yield answer
        except KubeError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise KubeError(0, f"the API server can't be reached: {error or type(error).__name__}") from None
        finally:
            if connection is not None:
                self._give_back(connection, reusable=answer is not None and answer.isclosed())

    def _request(
        self, method: str, path: str, query: dict[str, str], body: Object | None, timeout: float
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        url = path + "?" + urlencode({key: value for key, value in query.items() if value}) if query else path
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._file('token')}", "Accept": "application/json", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode("ascii")
        while True:
            connection, used = self._connection(timeout)
            try:
                connection.request(method, url, data, headers)
                return connection, connection.getresponse()
            except TimeoutError:
                self._give_back(connection, reusable=False)
                raise
            except (OSError, http.client.HTTPException):
                self._give_back(connection, reusable=False)
                if not used:  # a used one may have been closed by the server at any time
                    raise

    def _connection(self, timeout: float) -> tuple[http.client.HTTPSConnection, bool]:
        """One to send a request on, and whether it has been used before."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        used = connection is not None
        if connection is None:
            trusted = ssl.create_default_context(cafile=os.path.join(self._folder, "ca.crt"))
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self.timeout, context=trusted)
            try:
                connection.connect()
                _notice_silence(connection.sock)
            except BaseException:
                connection.close()
                raise
        connection.sock.settimeout(timeout)
        with self._lock:
            if self._closed:
                connection.close()
                raise KubeError(0, "the client is closed")
            self._busy.add(connection)
        return connection, used

    def _give_back(self, connection: http.client.HTTPSConnection, reusable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if reusable and connection.sock is not None and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _file(self, name: str) -> str:
        try:
            with open(os.path.join(self._folder, name), encoding="ascii") as stream:
                return stream.read().strip()
        except OSError as error:
            raise KubeError(0, f"the service account's {name} can't be read: {error.strerror}") from None


def patiently(action: Callable[[], T], seconds: float, wait: Callable[[float], object] = time.sleep) -> T:
    """Tries again what fails in passing, for `seconds`. Raises the last KubeError."""
    end, pause = time.monotonic() + seconds, FIRST_PAUSE
    while True:
        try:
            return action()
        except KubeError as error:
            left = end - time.monotonic()
            if not error.passing or left <= 0:
                raise
            wait(min(left, after(error, pause)))
            pause = min(2 * pause, LONGEST_PAUSE)


def after(error: KubeError, pause: float) -> float:
    """Seconds until the next try: what the server asks for, or about `pause`, so that many do not come at once."""
    return max(min(error.pause, MOST_ASKED), pause * random.uniform(0.7, 1.3))


def _notice_silence(sock: socket.socket) -> None:
    """A server whose machine is gone sends no end: the kernel asks for a sign of life after 5 seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 2), ("TCP_USER_TIMEOUT", 15000)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _parsed(data: bytes, strict: bool = True) -> Object:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    if strict:
        raise KubeError(0, "the API server's answer is not JSON")
    return {}


def _error(status: int, said: Object, retry_after: str | None = None) -> KubeError:
    details = said.get("details")
    pause = retry_after or (details.get("retryAfterSeconds") if isinstance(details, dict) else None) or 0
    message = " ".join(str(said.get("message") or http.client.responses.get(status, "")).split())
    seconds = float(pause) if str(pause).isdigit() else 0.0
    return KubeError(status, f"the API server says {status}: {message}", seconds)
