"""Reads on in the logs of a job's pods, each with a thread of its own while there are few, else in turns."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator

from ..base import LogLine
from .access import Api, Object
from .errors import ApiError, Unreachable
from .podlog import LogGone, PodLog
from .pods import Attempt, attempts

MOST_STREAMS = 64  # of pods whose lines come the moment they are written
TURNS = 8  # threads that look at all others one by one
PAUSE = 1.0  # seconds between two looks at a pod
LAST_WORDS = 20.0  # seconds that the streams of a job that is over have to end


class Follower:
    """`wants` says of which attempts the lines are wanted."""

    def __init__(self, api: Api, wants: Callable[[Attempt], bool]) -> None:
        self._api, self._wants = api, wants
        self._queue: queue.SimpleQueue[LogLine | Exception] = queue.SimpleQueue()
        self._pods: dict[str, PodLog] = {}
        self._admitted: list[PodLog] = []
        self._ended: set[str] = set()
        self._in_turn: list[list[PodLog]] = []
        self._streams = 0
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def admit(self, workflow: Object) -> list[PodLog]:
        """Takes note of new attempts and of those that have ended; returns the new ones."""
        found = []
        for attempt in filter(self._wants, attempts(workflow)):
            if attempt.pod not in self._pods:
                found.append(self._pods.setdefault(attempt.pod, PodLog(self._api, attempt)))
            if attempt.ended:
                self._ended.add(attempt.pod)
        self._admitted += found
        return found

    def begin(self) -> None:
        """Goes on reading those that were admitted since."""
        new, self._admitted = self._admitted, []
        for pod in new:
            if self._streams < MOST_STREAMS:
                self._streams += 1
                self._start(self._stream, pod)
            elif len(self._in_turn) < TURNS:
                self._in_turn.append([pod])
                self._start(self._take_turns, self._in_turn[-1])
            else:
                min(self._in_turn, key=len).append(pod)

    def lines(self, timeout: float) -> Iterator[LogLine]:
        """What has come; waits for it up to `timeout` seconds. Raises EngineError."""
        while True:
            try:
                found = self._queue.get(timeout=timeout)
            except queue.Empty:
                return
            if isinstance(found, Exception):
                raise found
            yield found
            timeout = 0.0

    def rest(self) -> Iterator[LogLine]:
        """The last lines of a job that is over."""
        self._over.set()
        deadline = time.monotonic() + LAST_WORDS
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < deadline:
                yield from self.lines(0.05)
        yield from self.lines(0.0)

    def close(self) -> None:
        self._over.set()
        for pod in list(self._pods.values()):
            pod.close()

    def _start(self, work: Callable[[PodLog], None] | Callable[[list[PodLog]], None], what: object) -> None:
        thread = threading.Thread(target=work, args=(what,), daemon=True, name="logs")
        self._threads.append(thread)
        thread.start()

    def _stream(self, pod: PodLog) -> None:
        try:
            while not pod.closed and not self._look(pod, follow=True):
                self._over.wait(PAUSE)
        except Exception as error:  # noqa: BLE001 (told to the one who waits for lines)
            self._queue.put(error)
        finally:
            self._streams -= 1

    def _take_turns(self, pods: list[PodLog]) -> None:
        try:
            while pods:
                for pod in list(pods):
                    if pod.closed or self._look(pod, follow=False):
                        pods.remove(pod)
                self._over.wait(PAUSE)
                if self._over.is_set() and not pods:
                    return
        except Exception as error:  # noqa: BLE001 (told to the one who waits for lines)
            self._queue.put(error)

    def _look(self, pod: PodLog, follow: bool) -> bool:
        """Reads what is there, or with `follow` what comes; whether that was the last of it."""
        last = self._over.is_set() or pod.attempt.pod in self._ended
        try:
            for line in pod.read(follow=follow and not last):
                self._queue.put(line)
        except LogGone:
            pass
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                raise
            return False
        return last
