"""The agent's end of what a script says through the learner library: a Unix socket, one session a process."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass

from ..learner import contract
from .channel import Channel, ClosedError, Message


@dataclass
class Session:
    """One process that uses the library. `cooperative`: it will hear a halt; `halted`: it has carried one out.

    `over`: when it last showed that it moves while it was in a world that is over; None: it is in the one that is on.
    """

    channel: Channel
    cooperative: bool = False
    follows: bool = False  # it goes on from one world to the next by itself
    halted: bool = False
    over: float | None = None


class Sessions:
    """All sessions of one run of the command, and the socket at which they arrive."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, contract.AGENT_SOCKET_FILE)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.setblocking(False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:  # an address of a Unix socket has at most 108 bytes, a path may have more
            self.listener.bind(f"/proc/self/fd/{held}/{contract.AGENT_SOCKET_FILE}")
        finally:
            os.close(held)
        self.listener.listen(64)
        self._sessions: dict[int, Session] = {}

    def accept(self) -> int | None:
        """Descriptor of the session that has arrived."""
        with contextlib.suppress(OSError):
            sock, _ = self.listener.accept()
            self._sessions[sock.fileno()] = Session(Channel(sock))
            return sock.fileno()
        return None

    def __contains__(self, descriptor: object) -> bool:
        return descriptor in self._sessions

    def __getitem__(self, descriptor: int) -> Session:
        return self._sessions[descriptor]

    def receive(self, descriptor: int) -> list[Message] | None:
        """What the session said; None, and it is gone, when it has ended."""
        session = self._sessions[descriptor]
        try:
            session.channel.flush()
            return session.channel.receive()
        except ClosedError:
            return None

    def send(self, descriptor: int, message: Message) -> None:
        with contextlib.suppress(ClosedError):
            self._sessions[descriptor].channel.send(message)

    def hand(self, descriptor: int, message: Message, what: socket.socket) -> None:
        """Sends `message`, and `what` with it."""
        with contextlib.suppress(ClosedError):
            self._sessions[descriptor].channel.hand(message, what)

    def tell_followers(self, message: Message) -> bool:
        """Tells the sessions that follow the worlds. Whether there is one."""
        following = [descriptor for descriptor, session in self._sessions.items() if session.follows]
        for descriptor in following:
            self.send(descriptor, message)
        return bool(following)

    def move_on(self, message: Message) -> bool:
        """Tells them to leave the world they are in. Whether there is one."""
        for session in self._sessions.values():
            if session.follows and session.over is None:
                session.over = time.monotonic()
        return self.tell_followers(message)

    def moves(self, descriptor: int, there: bool) -> None:
        """The session's process goes on; `there`: in the world that is on."""
        session = self._sessions[descriptor]
        session.over = None if there or session.over is None else time.monotonic()

    def stuck(self, now: float) -> bool:
        """Whether a session has not left a world that is over, and shows no sign that it ever will."""
        since = [session.over for session in self._sessions.values() if session.over is not None]
        return bool(since) and now - min(since) > contract.LEAVE_GRACE

    def ask_to_halt(self) -> None:
        """Asks every cooperative session; one that can't be told is found out when it closes."""
        for descriptor, session in self._sessions.items():
            if session.cooperative and not session.halted:
                self.send(descriptor, {"type": contract.HALT})

    @property
    def halting(self) -> bool:
        """A session is still there that will say when it has halted."""
        return any(session.cooperative and not session.halted for session in self._sessions.values())

    def drop(self, descriptor: int) -> None:
        self._sessions.pop(descriptor).channel.close()

    def descriptors(self) -> list[int]:
        return list(self._sessions)
