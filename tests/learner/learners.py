"""Learners of one world, each a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

from ffdl.learner.overlay import Overlay
from ffdl.learner.rendezvous import Place

WAIT = 60.0  # seconds; nothing here takes that long unless it hangs
FORK = multiprocessing.get_context("fork")


class Learners:
    """`size` processes that run `body(overlay)`; of those that return, `results` has what they returned, by rank."""

    def __init__(self, size: int, body: Callable[[Overlay], Any], shared_memory: bool, **more: Any) -> None:
        self.key, self.size = os.urandom(32), size
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(size)]
        self.addresses = [listener.getsockname()[:2] for listener in listeners]
        self._pipes = [FORK.Pipe(duplex=False) for _ in range(size)]
        self.processes = []
        for rank, listener in enumerate(listeners):
            place = Place(rank, 7, self.key)
            arguments = (body, self._pipes[rank][1], place, self.addresses, listener, shared_memory, more)
            self.processes.append(FORK.Process(target=_run, args=arguments, daemon=True))
        for process in self.processes:
            process.start()
        for listener, (_, result) in zip(listeners, self._pipes, strict=True):
            listener.close()
            result.close()

    def results(self) -> dict[int, Any]:
        found = {}
        for rank, (process, (result, _)) in enumerate(zip(self.processes, self._pipes, strict=True)):
            assert result.poll(WAIT), f"rank {rank} hangs"
            with contextlib.suppress(EOFError):  # it was killed
                found[rank] = result.recv()
            process.join(WAIT)
        for value in found.values():
            if isinstance(value, BaseException):
                raise value
        return found


def _run(
    body: Callable[[Overlay], Any],
    result: Any,
    place: Place,
    addresses: list[tuple[str, int]],
    listener: socket.socket,
    shared_memory: bool,
    more: dict[str, Any],
) -> None:
    try:
        with Overlay(place, addresses, listener, shared_memory=shared_memory, **more) as overlay:
            result.send(body(overlay))
    except BaseException as error:  # noqa: BLE001 (the test raises it)
        result.send(error)
