"""`python -m ffdl.steps.carry`: hands the files of a job's store or volume to one who cannot reach them.

Requests and answers are JSON objects, one a line, on standard input and output; a file's bytes follow the line that
announces them. `wait` as an argument keeps a pod alive for such conversations until nobody has come for a while.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from ..learner import contract
from . import retrieve, safe_files, step
from .retrying import Halted, Patience, Stop
from .storage import (
    CHUNK,
    PART,
    Entry,
    NoRanges,
    Objects,
    StoreError,
    credentials,
    open_store,
    printable,
    retry_seconds,
)

RETRY_SECONDS = 60.0
ALIVE_FILE = contract.RUN_DIR + "/carrying"  # touched while a conversation goes on
ALIVE_EVERY, FORSAKEN_AFTER = 10.0, 90.0  # seconds
MOST_REQUEST = 64 << 20  # bytes of a line
MOST_TAIL = 8 << 20  # bytes of files in one answer
_MD5 = re.compile(r"[0-9a-f]{32}")
Request = dict[str, Any]


class Conversation:
    """Answers requests until there are no more."""

    def __init__(self, source: BinaryIO, target: BinaryIO, stop: Stop) -> None:
        self._in, self._out, self._stop = source, target, stop
        self._patience = Patience(retry_seconds(RETRY_SECONDS), stop.wait, step.complain)
        self._opened: tuple[step.Job, Objects] | None = None

    def run(self) -> None:
        known: dict[str, Callable[[Request], None]] = {
            "list": self._list, "send": self._send, "receive": self._receive, "remove": self._remove,
            "tail": self._tail,
        }  # fmt: skip
        while line := self._in.readline(MOST_REQUEST):
            try:
                request = json.loads(line)
                known[request["do"]](request)
            except StoreError as error:
                self._answer({"error": printable(str(error))})

    def _answer(self, values: Request) -> None:
        self._out.write(json.dumps(values).encode("ascii") + b"\n")
        self._out.flush()

    def _store(self) -> tuple[step.Job, Objects]:
        if self._opened is None:
            job = step.Job.load()
            if job.spec.results is None:
                raise StoreError("the manifest asks for no results to be stored", permanent=True)
            self._opened = job, open_store(job.spec.results, credentials(), "results")
        return self._opened

    def _entries(self) -> dict[str, Entry]:
        job, objects = self._store()
        prefix = f"{job.id}/"
        found = self._patience.run(lambda: list(objects.list(prefix)))
        return {entry.key.removeprefix(prefix): entry for entry in found if not entry.key.endswith("/")}

    def _list(self, request: Request) -> None:
        """The files that `what` means (see `retrieve.wanted`)."""
        job, objects = self._store()
        entries = self._entries()
        if not entries and not request.get("empty"):
            raise StoreError(f"{objects.where} has nothing of {job.id}", permanent=True)
        names = retrieve.wanted(request["what"], list(entries))
        if not names and not request.get("empty"):
            raise retrieve.missing(objects, request["what"], job)
        files = [[name, entries[name].size, entries[name].tag] for name in names]
        self._answer({"files": files, "where": objects.where})

    def _send(self, request: Request) -> None:
        """Each of `files`, a list of [name, size, tag, from which byte on], with the MD5 of what was sent."""
        job, objects = self._store()
        for name, size, tag, begin in request["files"]:
            self._answer({"name": name, "from": begin})
            digest = hashlib.md5(usedforsecurity=False)
            for piece in _pieces(objects, Entry(f"{job.id}/{name}", size, tag), begin, self._patience, self._stop):
                digest.update(piece)
                self._out.write(piece)
            whole = digest.hexdigest()
            damaged = begin == 0 and _MD5.fullmatch(tag) is not None and whole != tag
            self._answer({"md5": whole, "doubtful": damaged})

    def _receive(self, request: Request) -> None:
        """Stores the `size` bytes that follow as `name`."""
        job, objects = self._store()
        data = self._in.read(request["size"])
        if hashlib.md5(data, usedforsecurity=False).hexdigest() != request["md5"]:
            raise StoreError(f"{request['name']} has not arrived whole")
        self._patience.run(lambda: objects.write(f"{job.id}/{request['name']}", data))
        self._answer({"stored": len(data)})

    def _remove(self, request: Request) -> None:
        """Removes all that the job has stored."""
        _, objects = self._store()
        entries = self._entries()
        for entry in entries.values():
            self._patience.run(partial(objects.delete, entry.key))
        self._answer({"removed": len(entries)})

    def _tail(self, request: Request) -> None:
        """What files in LOG_DIR have beyond the bytes that `from` says: name -> count.

        Not more than fits into an answer: asked again and again until there is nothing, it gives all.
        """
        folder = contract.path(contract.LOG_DIR)
        found: list[tuple[str, bytes]] = []
        left = MOST_TAIL
        for name, begin in request["from"].items():
            data = _beyond(folder, name, begin, left)
            left -= len(data)
            if data:
                found.append((name, data))
        self._answer({"parts": [[name, len(data)] for name, data in found]})
        for _, data in found:
            self._out.write(data)
        self._out.flush()


def _pieces(objects: Objects, entry: Entry, begin: int, patience: Patience, stop: Stop) -> Any:
    """The bytes of an object from `begin` on. Raises StoreError."""
    with contextlib.closing(os.fdopen(os.memfd_create("piece"), "r+b", buffering=0)) as held:

        def fetch(start: int, end: int) -> None:
            try:
                objects.fetch(entry, held.fileno(), start, end, lambda _: stop.check())
            except FileNotFoundError:
                raise StoreError(f"{objects.where}: {printable(entry.key)} is gone", permanent=True) from None

        whole = False
        while begin < entry.size:
            end = min(begin + PART, entry.size)
            try:
                if not whole:
                    patience.run(partial(fetch, begin, end))
            except NoRanges:
                patience.run(partial(fetch, 0, entry.size))
                whole = True
            yield os.pread(held.fileno(), end - begin, begin)
            if not whole:
                held.truncate(0)
            begin = end


def _beyond(folder: str, relative: str, begin: int, most: int) -> bytes:
    """Learners write there too: no link is followed, nothing but a regular file read."""
    pieces: list[bytes] = []
    with contextlib.suppress(OSError):
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            descriptor = safe_files.open_beneath(root, relative)
        finally:
            os.close(root)
        with open(descriptor, "rb", buffering=0) as stream:
            while most > 0 and (piece := os.pread(stream.fileno(), min(CHUNK, most), begin)):
                pieces.append(piece)
                begin, most = begin + len(piece), most - len(piece)
    return b"".join(pieces)


def wait() -> None:
    """Until nobody has talked to this pod for FORSAKEN_AFTER seconds."""
    _touch()
    stop = Stop().listen()
    with contextlib.suppress(Halted):
        while time.time() - os.stat(contract.path(ALIVE_FILE)).st_mtime < FORSAKEN_AFTER:
            stop.wait(ALIVE_EVERY)


def _touch() -> None:
    with contextlib.suppress(OSError), open(contract.path(ALIVE_FILE), "w"):
        pass


def _keep_alive() -> None:
    while True:
        _touch()
        time.sleep(ALIVE_EVERY)


def main(what: str = "") -> None:
    if what == "wait":
        wait()
        return
    threading.Thread(target=_keep_alive, daemon=True).start()
    with contextlib.suppress(BrokenPipeError, Halted):
        Conversation(sys.stdin.buffer, sys.stdout.buffer, Stop().listen()).run()
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
