"""Objects of the cluster as they change: lists and watches, over API servers that come and go."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..base import EngineError
from .access import Api, Kind, Object
from .errors import ApiError
from .patience import PAUSE_FIRST, Patience

WATCH_SECONDS = 280  # after which the server ends a watch, which is then begun anew
SILENCE = 100.0  # seconds without a word after which a connection counts as lost: bookmarks come each minute
LISTED, CHANGED, GONE = "listed", "changed", "gone"


@dataclass(frozen=True)
class Source:
    """The objects of one kind that are watched."""

    kind: Kind
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True)
class Change:
    """`what` is LISTED (all objects there are now, at first and whenever changes may have been missed), CHANGED or
    GONE (that one object).
    """

    source: Source
    what: str
    objects: Sequence[Object]


class Feed:
    """The changes of several sources in one queue, each source read by a thread of its own."""

    def __init__(self, api: Api, *sources: Source) -> None:
        self._queue: queue.SimpleQueue[Change | Exception] = queue.SimpleQueue()
        self._watchers = [_Watcher(api, source, self._queue) for source in sources]
        for watcher in self._watchers:
            watcher.start()

    def next(self, timeout: float | None) -> Change | None:
        """The next change; None if there is none for `timeout` seconds. Raises EngineError once a source is lost."""
        with suppress(queue.Empty):
            found = self._queue.get(timeout=None if timeout is None else max(0.0, timeout))
            if isinstance(found, Exception):
                raise found
            return found
        return None

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.stop()


@dataclass
class _Watcher:
    api: Api
    source: Source
    queue: queue.SimpleQueue[Change | Exception]
    stopped: threading.Event = field(default_factory=threading.Event)
    response: Any = None

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name=f"watch-{self.source.kind.plural}").start()

    def stop(self) -> None:
        self.stopped.set()
        with suppress(Exception):  # it may be closed already, by whichever side
            if self.response is not None:
                self.response.shutdown()

    def _run(self) -> None:
        version, patience = "", Patience()
        while not self.stopped.is_set():
            pause = 0.0
            try:
                version = version or self._list()
                version = self._watch(version, patience)
            except EngineError as error:
                if isinstance(error, ApiError) and error.status == 410:
                    version = ""
                    continue
                try:
                    pause = patience.again(error)
                except EngineError as last:
                    self.queue.put(last)
                    return
            except Exception as error:  # noqa: BLE001 (told to the one who waits for changes)
                self.queue.put(error)
                return
            self.stopped.wait(pause)

    def _list(self) -> str:
        """Tells all there are; returns the version to watch from."""
        found: list[Object] = []
        version = ""
        for page in self.api.pages(self.source.kind, self.source.labels, self.source.fields, at_one_time=True):
            found += page["items"] or ()
            version = page["metadata"]["resourceVersion"]
        self.queue.put(Change(self.source, LISTED, found))
        return version

    def _watch(self, version: str, patience: Patience) -> str:
        """Tells changes until the server ends the watch or the connection is lost; returns where to go on."""
        import urllib3

        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = str(WATCH_SECONDS)
        if self.source.labels:
            query["labelSelector"] = self.source.labels
        if self.source.fields:
            query["fieldSelector"] = self.source.fields
        kind = self.source.kind
        what = f"watch {kind.plural} in namespace {self.api.namespace}"
        with self.api.open("GET", self.api.path(kind), what, query, read_timeout=SILENCE) as response:
            self.response = response
            patience.answered()
            if self.stopped.is_set():
                return version
            try:
                for line in lines(response):
                    version = self._tell(json.loads(line)) or version
            except (urllib3.exceptions.HTTPError, OSError, ValueError):
                if not self.stopped.is_set():
                    self.stopped.wait(PAUSE_FIRST)
        return version

    def _tell(self, event: Object) -> str:
        found = event["object"]
        if event["type"] == "ERROR":
            raise ApiError(str(found.get("message")), int(found.get("code") or 500), str(found.get("reason")))
        if event["type"] != "BOOKMARK":
            what = GONE if event["type"] == "DELETED" else CHANGED
            self.queue.put(Change(self.source, what, [found]))
        return str(found["metadata"]["resourceVersion"])


def lines(response: Any, ended_only: bool = True) -> Iterator[bytes]:
    """The lines of a body that is still being written, as they come; one without an end if it is not `ended_only`."""
    rest = b""
    for piece in response.stream(amt=None if response.chunked else 65536):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest and not ended_only:
        yield rest
