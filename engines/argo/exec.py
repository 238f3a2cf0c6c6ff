"""A program run in a pod, spoken to over its standard input and output."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from ..base import EngineError
from .access import CONNECT_TIMEOUT, PODS, Api
from .errors import api_error, unreachable

STDIN, STDOUT, STDERR, OUTCOME = 0, 1, 2, 3
SILENCE = 120.0  # seconds without a byte after which the other side counts as lost
PIECE = 256 << 10
MOST_COMPLAINTS = 4096
MOST_LINE = 64 << 20


class Lost(EngineError):  # noqa: N818 (reads as the sentence it is)
    """The conversation broke off; it may be worth another try."""


class Exec:
    """Binary safe: what is sent arrives byte for byte. Raises Lost, EngineError."""

    def __init__(self, api: Api, pod: str, container: str, command: list[str]) -> None:
        from kubernetes.stream.ws_client import create_websocket
        from websocket import WebSocketBadStatusException, WebSocketException, getdefaulttimeout, setdefaulttimeout

        flags = {"container": container, "stdin": "true", "stdout": "true", "stderr": "true"}
        query = urlencode([*flags.items(), *(("command", word) for word in command)])
        configuration = api.connection.configuration
        url = configuration.host.replace("http", "ws", 1) + api.path(PODS, pod, "exec") + "?" + query
        headers = {**api.credentials(), "sec-websocket-protocol": "v5.channel.k8s.io,v4.channel.k8s.io"}
        what = f"run a program in pod {pod} in namespace {api.namespace}"
        before = getdefaulttimeout()
        setdefaulttimeout(2 * CONNECT_TIMEOUT)  # there is no other way to say it
        try:
            self._socket: Any = create_websocket(configuration, url, headers)  # type: ignore[no-untyped-call]
        except WebSocketBadStatusException as error:
            body = getattr(error, "resp_body", None) or b""
            raise api_error(error.status_code, bytes(body), what, api.connection.place) from None
        except (WebSocketException, OSError) as error:
            raise unreachable(error, api.connection.place, 2 * CONNECT_TIMEOUT) from None
        finally:
            setdefaulttimeout(before)
        self._socket.settimeout(SILENCE)
        self._rest = bytearray()
        self._said = bytearray()

    def send(self, data: bytes) -> None:
        from websocket import ABNF, WebSocketException

        view = memoryview(data)
        try:
            while view:
                self._socket.send(bytes([STDIN]) + view[:PIECE].tobytes(), opcode=ABNF.OPCODE_BINARY)
                view = view[PIECE:]
        except (WebSocketException, OSError) as error:
            raise Lost(f"the connection to the pod broke: {error}") from None

    def readline(self) -> bytes:
        while (end := self._rest.find(b"\n")) < 0:
            if len(self._rest) > MOST_LINE:
                raise Lost("the pod's answer is no line")
            self._rest += self._receive()
        line = bytes(self._rest[: end + 1])
        del self._rest[: end + 1]
        return line

    def read(self, size: int, sink: Callable[[bytes], object]) -> None:
        """The next `size` bytes, in pieces."""
        while size > 0:
            if not self._rest:
                self._rest += self._receive()
            piece = bytes(self._rest[:size])
            del self._rest[:size]
            size -= len(piece)
            sink(piece)

    def _receive(self) -> bytes:
        """The next bytes of standard output."""
        from websocket import ABNF, WebSocketException

        while True:
            try:
                code, frame = self._socket.recv_data_frame(True)
            except (WebSocketException, OSError) as error:
                raise Lost(f"the connection to the pod broke: {error}") from None
            if code == ABNF.OPCODE_CLOSE:
                raise Lost(f"the program in the pod has ended{self._complaint()}")
            data = frame.data
            if code not in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) or not data:
                continue
            if data[0] == STDOUT and len(data) > 1:
                return bytes(data[1:])
            if data[0] == STDERR:
                self._said += data[1:]
                del self._said[:-MOST_COMPLAINTS]
            if data[0] == OUTCOME:
                raise Lost(_ended(bytes(data[1:])) + self._complaint())

    def _complaint(self) -> str:
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def close(self) -> None:
        from websocket import WebSocketException

        with suppress(WebSocketException, OSError):
            self._socket.close(timeout=1)

    def __enter__(self) -> Exec:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _ended(outcome: bytes) -> str:
    try:
        values = json.loads(outcome)
    except ValueError:
        values = {}
    if values.get("status") == "Success":
        return "the program in the pod has ended"
    return f"the program in the pod failed: {' '.join(str(values.get('message') or 'no reason given').split())}"
