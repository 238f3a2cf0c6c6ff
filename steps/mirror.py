"""Copies of the API server's objects, kept true by watching: what a helper looks at without asking anyone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from .kube import FIRST_PAUSE, GONE, LONGEST_PAUSE, Kube, KubeError, Object, after

STREAM = 20.0  # seconds of one stream, at whose end the server says a word: a dead one is noticed soon after
LISTED_AGAIN = 4  # failures in a row after which the version is not trusted any more (a server set back, say)
T = TypeVar("T")


class Mirror(threading.Thread, Generic[T]):
    """A thread that holds `kept(object)` for each object the selectors pick, by name.

    `changed` is called, in that thread, after each change of what is held. `failure` says what keeps it from hearing.
    """

    def __init__(
        self,
        kube: Kube,
        plural: str,
        kept: Callable[[Object], T],
        changed: Callable[[], None],
        labels: str = "",
        fields: str = "",
        stream: float = STREAM,
    ) -> None:
        super().__init__(name=f"mirror-{plural}", daemon=True)
        self._kube, self._plural, self._kept, self._changed = kube, plural, kept, changed
        self._labels, self._fields, self._stream = labels, fields, stream
        self._lock = threading.Lock()
        self._items: dict[str, T] = {}
        self._version = ""
        self._stopped = threading.Event()
        self.synced = threading.Event()  # all has been listed once
        self.failure = ""

    @property
    def items(self) -> dict[str, T]:
        with self._lock:
            return dict(self._items)

    def stop(self) -> None:
        """To be followed by `Kube.close`, which ends what it waits for."""
        self._stopped.set()

    def run(self) -> None:
        pause, failures = FIRST_PAUSE, 0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._follow()
                self.failure = ""
                if time.monotonic() - began > 1.0:
                    pause, failures = FIRST_PAUSE, 0
                    continue
                wait = pause
            except KubeError as error:
                self.failure = str(error)
                if time.monotonic() - began > self._stream:
                    pause, failures = FIRST_PAUSE, 0  # it had worked for long
                failures += 1
                if error.status == GONE or failures >= LISTED_AGAIN:
                    self._version, failures = "", 0
                wait = after(error, pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self._stopped.wait(wait)

    def _list(self) -> None:
        found: dict[str, T] = {}
        version = ""
        for page, at in self._kube.pages(self._plural, self._labels, self._fields):
            version = at
            found |= {item["metadata"]["name"]: self._kept(item) for item in page}
        with self._lock:
            same, self._items = found == self._items, found
        self._version = version
        self.synced.set()
        if not same:
            self._changed()

    def _follow(self) -> None:
        for kind, item in self._kube.watch(self._plural, self._version, self._stream, self._labels, self._fields):
            about = item.get("metadata") or {}
            if kind != "BOOKMARK":
                self._take(str(about.get("name")), None if kind == "DELETED" else self._kept(item))
            self._version = str(about.get("resourceVersion") or self._version)
            if self._stopped.is_set():
                return

    def _take(self, name: str, value: T | None) -> None:
        with self._lock:
            if self._items.get(name) == value:
                return
            if value is None:
                del self._items[name]
            else:
                self._items[name] = value
        self._changed()
