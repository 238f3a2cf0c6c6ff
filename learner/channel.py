"""The line to the agent: JSON lines over its Unix socket. Once the agent is gone, everything here does nothing."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from . import contract

VERSION = 1
PATIENCE = 60.0  # seconds for the agent to answer
RETRY = 0.05  # seconds between tries to connect
FLUSH_INTERVAL = 0.2  # seconds: steps are told of together
LOOK_INTERVAL = 0.005  # seconds: so a look costs quick steps nothing
LARGEST_BACKLOG = 1 << 22  # bytes kept for a slow agent; beyond it the training waits, as it would for a full pipe
LAST_WORDS = 10.0  # seconds for what is still to be said at the end
LARGEST_METRICS = contract.MAX_FRAME // 8  # bytes of one record: more goes into a further one of the same step
LARGEST_BATCH = contract.MAX_FRAME - 2 * LARGEST_METRICS
ADDRESS_LIMIT = 107  # bytes of a Unix socket's path

Record = Tuple[int, float, Dict[str, Any]]  # step, unix seconds, metrics


class RefusedError(Exception):
    """The agent does not take part in such a session."""


class Channel:
    """`world` is what the agent said last about this learner's place; `halt` is true once it asked for a halt."""

    def __init__(self, address: str, follows: bool = False, patience: float = PATIENCE) -> None:
        """Joins; `follows`: it will go on in another world. Raises OSError where no agent answers within `patience`
        seconds, RefusedError."""
        self.world: Dict[str, Any] = {}
        self.refusal = ""  # why it is none of this job's sessions
        self.halt = False
        self.common: Optional[int] = None  # the newest step that all have saved, in worlds that go back together
        self.done: List[int] = []  # the learners that are, in worlds where they come and go
        self.broken = False  # the world is over, and the next has not been announced
        self.ended = False  # the job's end is decided, without us
        self._descriptors: List[int] = []  # that the agent has handed over
        self._records: List[Record] = []
        self._of: Optional[int] = None
        self._incoming = b""
        self._outgoing = bytearray()
        self._lock = threading.Lock()  # a commit is told from the thread that persisted it
        self._hearing = threading.Lock()  # a collective that waits hears from a thread of its own
        self._flushed = self._looked = float("-inf")
        deadline = time.monotonic() + patience
        self._socket: Optional[socket.socket] = _connect(address, deadline)
        more = {"follows": True} if follows else {}
        self.tell({"type": contract.HELLO, "pid": os.getpid(), "version": VERSION, **more})
        while not self.world:
            if self.refusal:
                self._hang_up()
                raise RefusedError(self.refusal)
            if self._socket is None:
                raise ConnectionError("it closed the connection")
            if not _ready(self._socket, select.POLLIN, deadline - time.monotonic()):
                self._hang_up()
                raise TimeoutError(f"no answer within {patience:.0f} s")
            self._receive()

    def record(self, step: int, of: Optional[int], metrics: Dict[str, Any], now: float) -> None:
        """Reports a step; `now` is the monotonic clock, in seconds."""
        if self._socket is None:
            return
        self._records.append((step, time.time(), metrics))
        self._of = of
        if now - self._flushed >= FLUSH_INTERVAL:
            self._flushed = now
            self.flush()

    def halted(self, now: float) -> bool:
        """Whether a halt was asked for, with a look at what the agent sent."""
        if now - self._looked >= LOOK_INTERVAL:
            self._looked = now
            self._receive()
        return self.halt

    def look(self) -> None:
        """Hears what the agent has sent."""
        self._receive()

    def wait(self, seconds: float) -> None:
        """Waits until the agent has said something. Raises ConnectionError where it is gone."""
        if self._socket is not None:
            _ready(self._socket, select.POLLIN, seconds)
        self._receive()
        if self._socket is None:
            raise ConnectionError("the agent is gone")

    def listener(self) -> socket.socket:
        """The socket at which other learners find this one. Raises ConnectionError."""
        self.tell({"type": contract.LISTENER})
        while not self._descriptors:
            self.wait(PATIENCE)
        return socket.socket(fileno=self._descriptors.pop(0))

    def tell(self, message: Dict[str, Any]) -> None:
        """Sends a message, after what is still waiting to be sent."""
        with self._lock:
            self._outgoing += json.dumps(message).encode("ascii") + b"\n"
            self._send()

    def flush(self) -> None:
        """Sends the steps recorded so far."""
        records, self._records = self._records, []
        with self._lock:
            for frame in frames(records, self._of):
                self._outgoing += frame
            self._send()

    def reach(self) -> bool:
        """Sends the steps recorded so far; whether the agent is there to hear of them."""
        self._receive()
        self.flush()
        return self._socket is not None

    def close(self, last: Optional[Dict[str, Any]] = None) -> None:
        """Says what is left to say, then `last`, and hangs up."""
        self.flush()
        if last is not None:
            self.tell(last)
        with self._lock:
            self._send(until_empty=True)
            self._hang_up()

    def drop(self) -> None:
        """Closes the socket without a word: for a forked child, whose parent goes on talking."""
        self._hang_up()

    def _send(self, until_empty: bool = False) -> None:
        deadline = time.monotonic() + LAST_WORDS
        while self._socket is not None and self._outgoing:
            connection = self._socket
            try:
                del self._outgoing[: connection.send(self._outgoing[: 1 << 16])]
            except BlockingIOError:
                if until_empty:
                    if time.monotonic() > deadline:
                        return
                elif len(self._outgoing) <= LARGEST_BACKLOG:
                    return
                _ready(connection, select.POLLOUT, 0.5)
            except OSError:
                self._hang_up()

    def _receive(self) -> None:
        if self._hearing.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._hearing.release()

    def _read(self) -> None:
        while self._socket is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
                self._descriptors += descriptors
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                with self._lock:
                    self._hang_up()
                return
            *lines, self._incoming = (self._incoming + data).split(b"\n")
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind = message["type"]
        except (ValueError, TypeError, KeyError):
            return  # not for us to judge: training goes on
        if kind in (contract.WORLD, contract.NEWS):
            self.common, self.done = message.get("common"), message.get("done") or []
        if kind == contract.HALT:
            self.halt = True
        elif kind == contract.WORLD:
            self.world, self.broken = message, False
        elif kind == contract.BREAK:
            self.broken = True
        elif kind == contract.REFUSED:
            self.refusal = str(message.get("reason"))
        elif kind == contract.END:
            self.ended = True

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._outgoing.clear()
        self._records.clear()


def frames(records: List[Record], of: Optional[int]) -> List[bytes]:
    """Steps as messages within MAX_FRAME. `records` holds all steps of one; beside it stands the last one again."""
    found: List[bytes] = []
    batch: List[str] = []
    size = 0
    last: Record = (0, 0.0, {})
    for record in _split(records):
        text = json.dumps(record)
        if batch and size + len(text) > LARGEST_BATCH:
            found.append(_frame(batch, last, of))
            batch, size = [], 0
        batch.append(text)
        size += len(text) + 1
        last = record
    if batch:
        found.append(_frame(batch, last, of))
    return found


def _frame(batch: List[str], last: Record, of: Optional[int]) -> bytes:
    step, at, metrics = last
    head = json.dumps({"type": contract.STEP, "step": step, "of": of, "metrics": metrics, "time": at})
    return f'{head[:-1]}, "records": [{",".join(batch)}]}}\n'.encode("ascii")


def _split(records: List[Record]) -> List[Record]:
    """The same records; one whose metrics are too many for a message becomes several of the same step."""
    parts: List[Record] = []
    for step, at, metrics in records:
        part: Dict[str, Any] = {}
        size = 0
        for name, value in metrics.items():
            length = len(json.dumps({name: value}))
            if size + length > LARGEST_METRICS - 128 and part:
                parts.append((step, at, part))
                part, size = {}, 0
            part[name] = value
            size += length
        parts.append((step, at, part))
    return parts


def _ready(connection: socket.socket, event: int, seconds: float) -> bool:
    """Waits for the connection. (Not select(): it can't watch descriptors from 1024 on.)"""
    poll = select.poll()
    poll.register(connection, event)
    return bool(poll.poll(max(seconds, 0) * 1000))


def _connect(address: str, deadline: float) -> socket.socket:
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect_to(connection, address)
            connection.setblocking(False)
            return connection
        except OSError:
            connection.close()
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY)


def _connect_to(connection: socket.socket, address: str) -> None:
    if len(os.fsencode(address)) <= ADDRESS_LIMIT:
        connection.connect(address)
        return
    # The path of a socket is limited, a name in an opened folder is not.
    folder, name = os.path.split(address)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
