"""JSON objects, one a line, over a socket that never blocks: agent and helper, learner library and agent."""

from __future__ import annotations

import json
import socket
from typing import Any

from ..learner import contract

Message = dict[str, Any]


class ClosedError(Exception):
    """The other side is gone, or said what is no message."""


class Channel:
    """One end of a connection. Frames are at most `contract.MAX_FRAME` bytes, unsent ones at most 16 times that."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._received = b""
        self._unsent = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    def send(self, message: Message) -> None:
        """Sends now what the socket takes, keeps the rest for `flush`. Raises ClosedError."""
        self._unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(self._unsent) > 16 * contract.MAX_FRAME:
            raise ClosedError("it does not read what it is sent")
        self.flush()

    def flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise ClosedError(str(error)) from None

    def hand(self, message: Message, what: socket.socket) -> None:
        """Sends `message` over a Unix socket, `what` with its first byte. Raises ClosedError where it can't at once."""
        self.flush()
        if self._unsent:
            raise ClosedError("it does not read what it is sent")
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            self._unsent = line[socket.send_fds(self._socket, [line], [what.fileno()]) :]
        except OSError as error:
            raise ClosedError(str(error)) from None

    def receive(self) -> list[Message]:
        """The messages that have come. Raises ClosedError at the end, and for what is no JSON object or too long."""
        messages: list[Message] = []
        try:
            data = self._socket.recv(contract.MAX_FRAME)
        except BlockingIOError:
            return messages
        except OSError as error:
            raise ClosedError(str(error)) from None
        if not data:
            raise ClosedError("the connection was closed")
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            if len(line) > contract.MAX_FRAME:
                raise ClosedError("a message is too long")
            messages.append(_parse(line))
        if len(self._received) > contract.MAX_FRAME:
            raise ClosedError("a message is too long")
        return messages

    def close(self) -> None:
        self._socket.close()


def _parse(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise ClosedError("not a message") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ClosedError("not a message")
    return message
