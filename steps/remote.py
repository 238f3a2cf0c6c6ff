"""A command run in another learner's pod, as by `ssh HOST COMMAND`: what its two sides agree on.

They prove to each other that they know the world's key (`learner.rendezvous`). Then

    server   a number that is used once (16 bytes)
    client   HMAC-SHA256 of the number and the command, the command's length, the command
    server   frames: kind, length, bytes; the last one is the exit status

The command goes on as long as the connection does.
"""

from __future__ import annotations

import hmac
import os
import re
import socket
import struct

from ..learner import contract
from ..learner.channel import PATIENCE, Channel
from ..learner.rendezvous import Place
from ..learner.world import World

OUT, ERR, STATUS = 1, 2, 3  # kinds of frames
LOST = 255  # the client's exit status where there is no other, as ssh's
MOST = 1 << 20  # bytes of a command
_ONCE, _MAC = 16, 32  # bytes
_LENGTH = struct.Struct("!I")
_HEAD = struct.Struct("!BI")


def enter(address: str) -> tuple[Channel, World]:
    """A session with the agent at the socket `address`, and the world that its learner is in. Raises OSError."""
    channel = Channel(address)
    channel.tell({"type": contract.PLACE})
    while not channel.world.get("key"):
        channel.wait(PATIENCE)
    return channel, World.from_message(channel.world)


def rank_of(host: str, job_id: str) -> int | None:
    """The learner that goes by the name `host`: `<job>-<i>`, with the job's domain or without."""
    found = re.fullmatch(rf"{re.escape(job_id)}-(\d{{1,9}})(\.{re.escape(job_id)}(\..*)?)?", host)
    return int(found[1]) if found else None


def ask(connection: socket.socket, place: Place, command: str) -> None:
    """The client's part, up to the frames. Raises OSError."""
    connection.settimeout(PATIENCE)
    once, said = _read(connection, _ONCE), os.fsencode(command)
    connection.sendall(_proof(place, once, said) + _LENGTH.pack(len(said)) + said)
    connection.settimeout(None)


def hear(connection: socket.socket, place: Place) -> str:
    """The server's part: the command. Raises OSError where it does not come from a member of the world."""
    connection.settimeout(PATIENCE)
    once = os.urandom(_ONCE)
    connection.sendall(once)
    proof, (length,) = _read(connection, _MAC), _LENGTH.unpack(_read(connection, _LENGTH.size))
    if length > MOST:
        raise ConnectionError(f"a command of {length} bytes")
    said = _read(connection, length)
    if not hmac.compare_digest(proof, _proof(place, once, said)):
        raise ConnectionError("the command is not what was sent")
    connection.settimeout(None)
    return os.fsdecode(said)


def send(connection: socket.socket, kind: int, data: bytes) -> None:
    connection.sendall(_HEAD.pack(kind, len(data)) + data)


def receive(connection: socket.socket) -> tuple[int, bytes]:
    """The next frame. Raises OSError."""
    kind, length = _HEAD.unpack(_read(connection, _HEAD.size))
    if length > MOST:
        raise ConnectionError(f"a frame of {length} bytes")
    return kind, _read(connection, length)


def _proof(place: Place, once: bytes, command: bytes) -> bytes:
    return place.prove(b"command", once, command)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = connection.recv(min(size - len(data), 1 << 16))
        if not got:
            raise ConnectionError("it hung up")
        data += got
    return data
