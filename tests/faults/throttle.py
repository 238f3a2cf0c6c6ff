"""A slow road to a store: a TCP proxy that hands on so many bytes a second, over all of its connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

PIECE = 1 << 16
WITHOUT = float("inf")


class Throttle:
    """Listens on a free port of `address` for one who wants `target`. `rate` is in bytes a second, each direction.

    `passed` counts the bytes that went through, both directions together, before the other side has them.
    """

    def __init__(self, address: str, target: tuple[str, int]) -> None:
        self.target = target
        self.rate = WITHOUT
        self.passed = 0
        self._lock = threading.Lock()
        self._free_at = {True: 0.0, False: 0.0}  # when the next piece may go, by direction
        self._listener = socket.create_server((address, 0), backlog=64)
        self.endpoint = f"http://{address}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """No new connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, 5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for source, sink, up in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._carry, args=(source, sink, up), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(PIECE):
                self._wait_for_turn(len(data), up)
                with self._lock:
                    self.passed += len(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for connection in (source, sink):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()

    def _wait_for_turn(self, size: int, up: bool) -> None:
        with self._lock:
            turn = max(self._free_at[up], time.monotonic())
            self._free_at[up] = turn + size / self.rate
        while (left := turn - time.monotonic()) > 0 and self.rate != WITHOUT:
            time.sleep(min(left, 0.05))
