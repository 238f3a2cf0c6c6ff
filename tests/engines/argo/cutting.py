"""A way to the API server that breaks: connections are cut after so many bytes, as long as a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml


class Way:
    """Forwards connections. While `most` is a number, a connection that has brought so many bytes back is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.most: int | None = None
        self.cuts = 0
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """All that are open."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
                self._open |= {near, far}
                threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                passed += len(data)
                if back and self.most is not None and passed > self.most:
                    self.cuts += 1
                    break
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)


@contextlib.contextmanager
def way(kubeconfig: Path, folder: Path) -> Iterator[tuple[Way, Path]]:
    """A way to the cluster of `kubeconfig`, and a kubeconfig that takes it."""
    values = yaml.safe_load(kubeconfig.read_text())
    cluster = values["clusters"][0]["cluster"]
    parts = urlsplit(cluster["server"])
    one = Way(str(parts.hostname), parts.port or 443)
    cluster |= {"server": f"https://127.0.0.1:{one.port}", "tls-server-name": "kubernetes"}
    if "certificate-authority" in cluster:
        cluster["certificate-authority"] = str(kubeconfig.parent / cluster["certificate-authority"])
    file = folder / "way.kubeconfig"
    file.write_text(yaml.safe_dump(values))
    try:
        yield one, file
    finally:
        one.close()
