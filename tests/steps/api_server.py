"""A small Kubernetes API server for tests: real HTTPS, versions, pages, watches with bookmarks; it fails as told."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
GO_ON = object()  # what a misbehaviour returns where the request is to be answered all the same
TOKEN = "token-1"


class ApiServer:
    """`seen` tells of each request as (verb, plural, query). `fail`: how the next such request goes wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[tuple[str, str], Object] = {}
        self.token = TOKEN
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.horizon = 0  # changes before it are forgotten
        self.changed = threading.Condition()
        self._changes: list[tuple[int, str, str, Object]] = []
        self._version = 100
        self._faults: list[tuple[str, str, Callable[[Handler], object]]] = []
        self._sockets: set[socket.socket] = set()
        self._server: http.server.ThreadingHTTPServer | None = None
        self.port = 0
        _keys(folder)
        (folder / "token").write_text(TOKEN)
        (folder / "namespace").write_text("ns")
        self.start()

    # --- what a test does -----------------------------------------------------------------------------------------

    def put(self, plural: str, found: Object) -> Object:
        """Creates or replaces an object, as a controller would."""
        with self.changed:
            key = (plural, found["metadata"]["name"])
            before = self.objects.get(key)
            self._version += 1
            about = {"uid": before["metadata"]["uid"] if before else f"uid-{self._version}", **found["metadata"]}
            made = {**found, "metadata": {**about, "resourceVersion": str(self._version)}}
            self.objects[key] = made
            self._changes.append((self._version, "MODIFIED" if before else "ADDED", plural, made))
            self.changed.notify_all()
        return made

    def remove(self, plural: str, name: str) -> None:
        with self.changed:
            found = self.objects.pop((plural, name))
            self._version += 1
            gone = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}
            self._changes.append((self._version, "DELETED", plural, gone))
            self.changed.notify_all()

    def kubeconfig(self, file: Path) -> Path:
        """Written there: a user's of this server, in namespace ns."""
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self.folder / "ca.crt")}
        values = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(values))
        return file

    def forget(self) -> None:
        """As after a compaction: whoever asks for changes since before now is told that they are gone."""
        with self.changed:
            self._version += 1
            self.horizon = self._version

    def fail(self, verb: str, plural: str, how: Callable[[Handler], object]) -> None:
        self._faults.append((verb, plural, how))

    def count(self, verb: str, plural: str) -> int:
        return sum(seen[:2] == (verb, plural) for seen in self.seen)

    def cut(self) -> None:
        """Breaks every connection, without a word."""
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def start(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), type("Bound", (Handler,), {"api": self}))
        server.daemon_threads = True
        server.block_on_close = False
        self.port = server.server_address[1]
        self._server, self._context = server, context
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.cut()

    # --- what its requests do -------------------------------------------------------------------------------------

    def wrapped(self, sock: socket.socket) -> ssl.SSLSocket:
        found = self._context.wrap_socket(sock, server_side=True)
        self._sockets.add(found)
        return found

    def closed(self, sock: socket.socket) -> None:
        self._sockets.discard(sock)
        sock.close()

    def fault(self, verb: str, plural: str) -> Callable[[Handler], object] | None:
        for number, fault in enumerate(self._faults):
            if fault[:2] == (verb, plural):
                return self._faults.pop(number)[2]
        return None

    def changes(self, plural: str, since: int) -> list[tuple[int, str, Object]]:
        return [
            (version, kind, found) for version, kind, of, found in self._changes if of == plural and version > since
        ]

    @property
    def version(self) -> int:
        return self._version


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    api: ApiServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.request = self.api.wrapped(self.request)
        super().setup()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()
        self.api.closed(self.request)

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        plural, name, query = self._asked()
        verb = "get" if name else "watch" if "watch" in query else "list"
        if self._refused(verb, plural, query):
            return
        if name:
            found = self.api.objects.get((plural, name))
            self.answer(200, found) if found else self.error(404, "NotFound")
        elif verb == "watch":
            self._watch(plural, query)
        else:
            self._list(plural, query)

    def do_POST(self) -> None:
        plural, _, query = self._asked()
        body = self._body()
        if not self._refused("create", plural, query):
            if (plural, body["metadata"]["name"]) in self.api.objects:
                self.error(409, "AlreadyExists")
            else:
                self.answer(201, self.api.put(plural, body))

    def do_PATCH(self) -> None:
        plural, name, query = self._asked()
        body = self._body()
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        if self._refused("patch", plural, query):
            return
        with self.api.changed:
            found = self.api.objects.get((plural, name))
            version = body.get("metadata", {}).pop("resourceVersion", None)
            if found is None:
                self.error(404, "NotFound")
            elif version not in (None, found["metadata"]["resourceVersion"]):
                self.error(409, "Conflict")
            else:
                self.answer(200, self.api.put(plural, _merged(found, body)))

    def do_DELETE(self) -> None:
        plural, name, query = self._asked()
        body = self._body()
        if self._refused("delete", plural, {**query, "body": json.dumps(body)}):
            return
        found = self.api.objects.get((plural, name))
        if found is None:
            self.error(404, "NotFound")
        elif body.get("preconditions", {}).get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            self.error(409, "Conflict")
        else:
            self.api.remove(plural, name)
            self.answer(200, found)

    # --- answers --------------------------------------------------------------------------------------------------

    def answer(self, status: int, body: Object, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def error(self, status: int, reason: str, **headers: str) -> None:
        body = {"kind": "Status", "code": status, "reason": reason, "message": f"{reason} as told"}
        self.answer(status, body, **headers)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def say(self, kind: str, found: Object) -> None:
        self.chunk(json.dumps({"type": kind, "object": found}).encode() + b"\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        names = parts.path.split("/namespaces/ns/")[1].split("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return names[0], names[1] if len(names) > 1 else "", query

    def _body(self) -> Object:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)))  # type: ignore[no-any-return]

    def _refused(self, verb: str, plural: str, query: dict[str, str]) -> bool:
        self.api.seen.append((verb, plural, query))
        fault = self.api.fault(verb, plural)
        if fault is not None and fault(self) is not GO_ON:
            return True
        if self.headers["Authorization"] != f"Bearer {self.api.token}":
            self.error(401, "Unauthorized")
            return True
        return False

    def _list(self, plural: str, query: dict[str, str]) -> None:
        names = sorted(name for of, name in self.api.objects if of == plural)
        start, size = int(query.get("continue", 0)), int(query.get("limit", 500))
        about: Object = {"resourceVersion": str(self.api.version)}
        if start + size < len(names):
            about["continue"] = str(start + size)
        items = [self.api.objects[(plural, name)] for name in names[start : start + size]]
        self.answer(200, {"metadata": about, "items": [i for i in items if _picked(i, query)] or None})

    def _watch(self, plural: str, query: dict[str, str]) -> None:
        since, end = int(query["resourceVersion"]), time.monotonic() + int(query["timeoutSeconds"])
        if since < self.api.horizon:
            self.error(410, "Expired")
            return
        self.begin_stream()
        while (left := end - time.monotonic()) > 0:
            with self.api.changed:
                changes = self.api.changes(plural, since)
                if not changes:
                    self.api.changed.wait(min(left, 0.1))
            for version, kind, found in changes:
                if _picked(found, query):
                    self.say(kind, found)
                since = version
        self.say("BOOKMARK", {"metadata": {"resourceVersion": str(self.api.version)}})
        self.wfile.write(b"0\r\n\r\n")


def _picked(found: Object, query: dict[str, str]) -> bool:
    about = found["metadata"]
    for selector in filter(None, query.get("labelSelector", "").split(",")):
        name, equals, value = _selector(selector)
        if ((about.get("labels") or {}).get(name) == value) is not equals:
            return False
    for selector in filter(None, query.get("fieldSelector", "").split(",")):
        path, equals, value = _selector(selector)
        there: Any = found
        for part in path.split("."):
            there = (there or {}).get(part)
        if (there == value) is not equals:
            return False
    return True


def _selector(text: str) -> tuple[str, bool, str]:
    """What is looked at, whether it is to be so, and what it is to be or not to be."""
    name, sign, value = text.partition("!=" if "!=" in text else "=")
    return name, sign == "=", value


def _merged(found: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    merged = dict(found) if isinstance(found, dict) else {}
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _keys(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    target = ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
    subprocess.run(["openssl", "req", "-x509", *key, *names, *target], check=True, capture_output=True)
    (folder / "ca.crt").write_bytes((folder / "server.crt").read_bytes())


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[ApiServer]:
    server = ApiServer(folder)
    try:
        yield server
    finally:
        server.stop()
