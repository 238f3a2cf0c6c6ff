"""How the learners of a world find one another and keep strangers out.

Who connects proves that it knows the world's key, and is proven the same, without the key being sent:

    acceptor   challenge (16 bytes)
    connector  generation, its rank, the rank it wants, a challenge of its own, HMAC-SHA256 of all this and of the first
    acceptor   HMAC-SHA256 of the connector's challenge

All of it has a fixed length: there is nothing a stranger could make anyone wait for, allocate or parse.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Collection, Dict, Generator, List, Optional, Sequence, Tuple, Union

from .contract import LOOK_EVERY
from .errors import PeerLost

_ABOUT = struct.Struct("!QII16s")
_CHALLENGE, _MAC = 16, 32  # bytes
_HELLO = _ABOUT.size + _MAC
HANDSHAKE_WITHIN = 5.0  # seconds
STRANGERS_MOST = 64  # that are listened to at once
TRY_FIRST, TRY_MOST = 0.01, 0.5  # seconds between two tries to connect


@dataclass(frozen=True)
class Place:
    """A rank of a world: `key` is known to its members alone, `generation` tells it from those before."""

    rank: int
    generation: int
    key: bytes

    def prove(self, *parts: bytes) -> bytes:
        return hmac.new(self.key, b"".join(parts), hashlib.sha256).digest()


def connect(place: Place, to: int, address: Union[bytes, Tuple[str, int]], look: Callable[[], None]) -> socket.socket:
    """A connection to rank `to` at `address` (a host and a port: TCP, the name of a Unix socket: by packets).

    It is tried and waited for until `look`, called twice a second, raises.
    """
    if isinstance(address, bytes):
        family, kind = socket.AF_UNIX, socket.SOCK_SEQPACKET
    else:
        family, kind = socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM
    pause = TRY_FIRST
    while True:
        connection = socket.socket(family, kind)
        try:
            connection.settimeout(LOOK_EVERY)
            connection.connect(address)
            present(connection, place, to, look)
            return connection
        except OSError as error:
            connection.close()
            if isinstance(error, PeerLost):
                raise
        except BaseException:
            connection.close()
            raise
        look()
        time.sleep(pause)
        pause = min(2 * pause, TRY_MOST)


def present(connection: socket.socket, place: Place, to: int, look: Callable[[], None]) -> None:
    """The connector's part. Raises OSError where the other side is not who it should be."""
    theirs, own = _read(connection, _CHALLENGE, look), os.urandom(_CHALLENGE)
    about = _ABOUT.pack(place.generation, place.rank, to, own)
    connection.sendall(about + place.prove(theirs, about))
    if not hmac.compare_digest(_read(connection, _MAC, look), place.prove(own)):
        raise ConnectionError("it does not know the world's key")


def _read(connection: socket.socket, size: int, look: Callable[[], None]) -> bytes:
    data = b""
    while len(data) < size:
        try:
            got = connection.recv(size - len(data))
        except socket.timeout:
            look()
            continue
        if not got:
            raise ConnectionError("it hung up")
        data += got
    return data


def hang_up(connection: socket.socket) -> None:
    """Closes it, also for a thread of this process that waits at it."""
    with contextlib.suppress(OSError):  # the other side was first
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def admit(
    place: Place, listener: socket.socket, wanted: Collection[int], look: Callable[[], None]
) -> Dict[int, socket.socket]:
    """The connections of the ranks `wanted`, waited for until `look`, called twice a second, raises."""
    admitted: Dict[int, socket.socket] = {}
    coming = arrivals(place, [listener], lambda rank: rank in wanted and rank not in admitted, look)
    try:
        while len(admitted) < len(wanted):
            rank, connection = next(coming)
            admitted[rank] = connection
    except BaseException:
        for connection in admitted.values():
            connection.close()
        raise
    finally:
        coming.close()
    return admitted


def arrivals(
    place: Place, listeners: Sequence[socket.socket], wanted: Callable[[int], bool], look: Callable[[], None]
) -> Generator[Tuple[int, socket.socket], None, None]:
    """Ranks that are `wanted` and their connections, as they come, until `look`, called twice a second, raises."""
    with selectors.DefaultSelector() as selector:
        for listener in listeners:
            listener.setblocking(False)
            selector.register(listener, selectors.EVENT_READ)
        try:
            while True:
                ready = selector.select(LOOK_EVERY)
                for key, _ in sorted(ready, key=lambda one: one[0].data is None):  # a newcomer may cost one its place
                    if key.data is None:
                        _open(selector, key.fileobj)
                    elif key.data.read():
                        selector.unregister(key.fileobj)
                        rank = key.data.rank(place)
                        if rank is not None and wanted(rank) and key.data.welcome(place):
                            yield rank, key.data.connection
                        else:
                            key.data.turn_away("it does not belong to this world")
                latest = time.monotonic() - HANDSHAKE_WITHIN
                for key in _strangers(selector):
                    if key.data.since < latest:
                        _turn_away(selector, key, "it said nothing of use")
                look()
        finally:
            for key in list(selector.get_map().values()):
                if key.data is not None:
                    key.data.close()


def _open(selector: selectors.BaseSelector, listener: Any) -> None:
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        if len(waiting := _strangers(selector)) >= STRANGERS_MOST:  # the oldest goes: who comes may belong here
            _turn_away(selector, waiting[0], "there are too many")
        selector.register(connection, selectors.EVENT_READ, _Stranger(connection))


def _strangers(selector: selectors.BaseSelector) -> List[selectors.SelectorKey]:
    """The oldest first."""
    return sorted((key for key in selector.get_map().values() if key.data is not None), key=lambda key: key.data.since)


def _turn_away(selector: selectors.BaseSelector, key: selectors.SelectorKey, why: str) -> None:
    selector.unregister(key.fileobj)
    key.data.turn_away(why)


class _Stranger:
    """Someone at the door who has not said yet who it is."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.since = connection, time.monotonic()
        self._challenge, self._theirs = os.urandom(_CHALLENGE), b""
        self._said, self._ended = b"", False
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.send(self._challenge)

    def read(self) -> bool:
        """Whether it has said all that there is to say."""
        try:
            got = self.connection.recv(_HELLO - len(self._said))
        except BlockingIOError:
            return False
        except OSError:
            got = b""
        self._said += got
        self._ended = not got
        return self._ended or len(self._said) == _HELLO

    def rank(self, place: Place) -> Optional[int]:
        """The rank that it has proven to be; None: it belongs elsewhere."""
        about, mac = self._said[: _ABOUT.size], self._said[_ABOUT.size :]
        if self._ended or not hmac.compare_digest(mac, place.prove(self._challenge, about)):
            return None
        generation, rank, to, self._theirs = _ABOUT.unpack(about)
        return int(rank) if (generation, to) == (place.generation, place.rank) else None

    def welcome(self, place: Place) -> bool:
        """Proves the same to it. Whether it is still there."""
        with contextlib.suppress(OSError):
            return self.connection.send(place.prove(self._theirs)) == _MAC
        return False

    def turn_away(self, why: str) -> None:
        self.connection.close()
        print(f"ffdl: someone who wanted to join the learners was turned away: {why}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self.connection.close()
