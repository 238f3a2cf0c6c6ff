"""Many files at once into a store: in parallel, within a bound of memory, verified, and only what has changed."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeVar

from ..learner import contract
from .retrying import Patience, Stop
from .storage import SINGLE, Entry, Objects, Source, SourceError, StoreError, Vanished, printable

WORKERS = 8
BUDGET = WORKERS * SINGLE  # bytes of file contents held in memory at once
READ_AGAIN = 3  # a file that changes while it is read
T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """A file to store: `relative` beneath `root` goes to `key`."""

    key: str
    root: str
    relative: str


@dataclass(frozen=True)
class Stored:
    """What the store has: `digest` is `md5:<hexadecimal>`."""

    size: int
    digest: str
    tag: str


@dataclass
class Outcome:
    """`stored` by key, `missing`: key -> why, `vanished`: what was gone when its turn came."""

    stored: dict[str, Stored] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    vanished: list[str] = field(default_factory=list)


class Memory:
    """What this job has stored before, in a file: key -> size and mtime of the file, tag and digest of the object."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[str, list[object]] = {}
        with contextlib.suppress(OSError, ValueError, KeyError), open(name, encoding="utf-8") as stream:
            self._known = json.load(stream)["objects"]

    def recall(self, key: str, source: Source, tag: str) -> str | None:
        """The digest, if neither the file nor the object has changed since."""
        known = self._known.get(key)
        if known is not None and known[:3] == [source.size, source.mtime_ns, tag]:
            return str(known[3])
        return None

    def note(self, key: str, source: Source, tag: str, digest: str) -> None:
        self._known[key] = [source.size, source.mtime_ns, tag, digest]

    def digest(self, key: str, tag: str) -> str:
        """`md5:<hexadecimal>` of an object that has not changed since it was stored; empty if that is not known."""
        known = self._known.get(key)
        return f"md5:{known[3]}" if known is not None and known[2] == tag else ""

    def forget(self, key: str) -> None:
        self._known.pop(key, None)

    def save(self) -> None:
        """A memory that can't be written costs work, not truth."""
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._name), exist_ok=True)
            text = json.dumps({"format": 1, "objects": dict(self._known)})
            contract.atomic_write(self._name, text.encode("ascii"))


class Budget:
    """At most `size` bytes in hand at once; what is bigger takes all of it."""

    def __init__(self, size: int) -> None:
        self._size, self._free, self._changed = size, size, threading.Condition()

    @contextlib.contextmanager
    def hold(self, size: int) -> Iterator[None]:
        share = min(size, self._size)
        with self._changed:
            while self._free < share:
                self._changed.wait()
            self._free -= share
        try:
            yield
        finally:
            with self._changed:
                self._free += share
                self._changed.notify_all()


def run_all(tasks: Iterable[Callable[[], T]], stop: Stop, workers: int = WORKERS) -> Iterator[T]:
    """Results as they come. The first exception of a task, or Halted, ends it: what has not begun is dropped.

    Tasks still at work are waited for only if they end by themselves soon; they leave nothing that is half done.
    """
    pool = ThreadPoolExecutor(workers)
    waiting = {pool.submit(task) for task in tasks}
    try:
        while waiting:
            done, waiting = wait(waiting, 0.25, FIRST_COMPLETED)
            stop.check()
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(wait=not waiting, cancel_futures=True)


def upload(
    objects: Objects, items: Iterable[Item], folder: str, memory: Memory, patience: Patience, stop: Stop
) -> Outcome:
    """Stores the items (all of their keys beneath `folder`, which ends in a slash) and looks that they are there.

    A file that can't be read or named is `missing` and the others go on; a store that fails for good raises StoreError.
    """
    outcome, budget = Outcome(), Budget(BUDGET)
    there = {entry.key: entry for entry in patience.run(lambda: list(objects.list(folder)))}
    todo: dict[str, Item] = {}
    for item in items:
        key = objects.key(item.key)
        if key in todo:
            outcome.missing[item.key] = f"{printable(item.key)}: another file has this name in the store"
        else:
            todo[key] = item

    def one(key: str, item: Item) -> tuple[str, Stored | SourceError]:
        for last in (*[False] * (READ_AGAIN - 1), True):
            stop.check()
            try:
                with Source(item.root, item.relative) as source, budget.hold(_share(source.size)):
                    return key, _store(objects, key, source, there.get(key), memory, patience)
            except Vanished as error:
                return key, error
            except SourceError as error:
                if last:
                    return key, error
        raise AssertionError

    for _ in range(READ_AGAIN):
        tasks = [lambda key=key, item=item: one(key, item) for key, item in todo.items()]
        for key, result in run_all(tasks, stop):
            if isinstance(result, Stored):
                outcome.stored[key] = result
            elif isinstance(result, Vanished):
                outcome.vanished.append(todo[key].key)
            else:
                outcome.missing[todo[key].key] = str(result)
        memory.save()
        there = {entry.key: entry for entry in patience.run(lambda: list(objects.list(folder)))}
        wrong = [
            key
            for key, stored in outcome.stored.items()
            if key not in there or (there[key].size, there[key].tag) != (stored.size, stored.tag)
        ]
        if not wrong:
            return outcome
        todo = {key: todo[key] for key in wrong if key in todo}
        for key in wrong:
            memory.forget(key)
            there.pop(key, None)
            del outcome.stored[key]
    raise StoreError(f"{objects.where}: {printable(wrong[0])} is not there as it was stored")


def _share(size: int) -> int:
    return size if size <= SINGLE else BUDGET


def _store(
    objects: Objects, key: str, source: Source, there: Entry | None, memory: Memory, patience: Patience
) -> Stored:
    if there is not None and there.size == source.size:
        digest = memory.recall(key, source, there.tag) or objects.same(there, source)
        if digest:
            memory.note(key, source, there.tag, digest)
            return Stored(source.size, f"md5:{digest}", there.tag)
    entry, digest = patience.run(lambda: objects.put(key, source))
    memory.note(key, source, entry.tag, digest)
    return Stored(entry.size, f"md5:{digest}", entry.tag)
