"""A learner's connection to its helper: found through the address file, made again whenever it is lost."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable
from typing import Any

from ..learner import contract
from .channel import Channel, ClosedError, Message

_WELCOME_WITHIN = 5.0  # seconds from connecting to being welcomed
_TRY_FIRST, _TRY_MOST = 0.1, 1.0  # seconds between two tries to connect


class Link:
    """Times in seconds of one clock that only goes forward. Helpers of an epoch lower than one seen are not heard.

    `joined`: the helper has welcomed us. `absent_since`: since when it has not. `outcome`: what the last helper left
    for those that come after it, once there is such a thing. `before_close` is called while the channel is still open.
    """

    def __init__(self, address_file: str, join: Message, now: float) -> None:
        self._address_file, self._join = address_file, join
        self.before_close: Callable[[], None] = lambda: None
        self.channel: Channel | None = None
        self.joined = False
        self.epoch = 0
        self.absent_since = now
        self.outcome: dict[str, Any] | None = None
        self._connected_epoch = 0
        self._connected_at = self._heard = now
        self._beat_at = self._look_at = 0.0
        self._pause, self._try_at = _TRY_FIRST, now

    def tick(self, status: Message, now: float) -> None:
        """Connects, beats and gives up as time demands. `status` goes into heartbeats and into the request to join."""
        if self.channel is None:
            if now >= self._try_at:
                self._pause = min(1.5 * self._pause, _TRY_MOST)
                self._try_at = now + self._pause
                self._connect(status, now)
            return
        if not self.joined:
            if now - self._connected_at > _WELCOME_WITHIN:
                self.drop(now)
        elif now - self._heard > contract.HEARTBEAT_TIMEOUT:
            self.drop(now)
        elif now >= self._beat_at:
            self._beat_at = now + contract.HEARTBEAT_INTERVAL
            self.send({"type": contract.HEARTBEAT, **status}, now)
            address = self._address()
            if address is not None and address["epoch"] > self._connected_epoch:
                self.drop(now)

    def receive(self, now: float) -> list[Message]:
        """What the helper said; on a lost connection nothing, and the next `tick` connects anew."""
        if self.channel is None:
            return []
        try:
            self.channel.flush()
            messages = self.channel.receive()
        except ClosedError:
            self.drop(now)
            return []
        if messages:
            self._heard = now
        for message in messages:
            if message["type"] == contract.WELCOME:
                epoch = message.get("epoch")
                if not isinstance(epoch, int) or epoch < self.epoch:
                    self.drop(now)
                    return []
                self.epoch = self._connected_epoch = epoch
                self.joined, self._pause, self._beat_at = True, _TRY_FIRST, now
        return messages

    def send(self, message: Message, now: float) -> None:
        """Sends if there is a connection; a failure only loses the connection."""
        if self.channel is not None:
            try:
                self.channel.send(message)
            except ClosedError:
                self.drop(now)

    def drop(self, now: float) -> None:
        if self.channel is not None:
            self.before_close()
            self.channel.close()
            self.channel = None
        if self.joined:
            self.joined, self.absent_since = False, now
            self._try_at = now + _TRY_FIRST

    def _connect(self, status: Message, now: float) -> None:
        address = self._address()
        if address is None or address["epoch"] < self.epoch:
            return
        if isinstance(address.get("outcome"), dict):
            self.outcome = address["outcome"]
            return
        host, port = str(address.get("host", "")), address.get("port")
        if not host or not isinstance(port, int):
            return
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            failure = sock.connect_ex((host, port))
        except (OSError, OverflowError):
            failure = errno.EINVAL
        if failure not in (0, errno.EINPROGRESS):
            sock.close()
            return
        self.channel, self._connected_at, self._connected_epoch = Channel(sock), now, address["epoch"]
        self.send({**self._join, **status, "type": contract.JOIN}, now)

    def _address(self) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError), open(self._address_file, "rb") as stream:
            address = json.load(stream)
            if isinstance(address, dict) and isinstance(address.get("epoch"), int):
                return address
        return None


def helper_wait(attempt: int) -> float:
    """Seconds that attempt `attempt` (from 0) of a learner waits for its helper."""
    return float(min(contract.HELPER_WAIT_FIRST * 2.0 ** min(attempt, 30), contract.HELPER_WAIT_MOST))


def address_file() -> str:
    return os.path.join(contract.path(contract.HELPER_DIR), contract.ADDRESS_FILE)
