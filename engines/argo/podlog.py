"""One pod's output from the API server, each line once however often it is asked for."""

from __future__ import annotations

import contextlib
import re
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from ...learner import contract
from ..base import LogLine
from .access import PODS, Api
from .errors import ApiError
from .pods import MAIN, Attempt
from .watching import lines

SILENCE = 600.0  # seconds without output after which a stream is opened anew
_FAREWELL = re.compile(rb"^\S+ Error: exit status \d+$")  # its last line where the command has failed
_NO_LOG = b"unable to retrieve container logs for "  # a kubelet's words, of a container that it has removed
ARGOS_LINES = 20  # of a pod's last ones that may not be the command's
MOST_BEGINNING = 4096  # bytes of it that are looked at: Argo's executor says a few lines first
_EARLIER_POD = f"ffdl: {contract.EARLIER_POD}".encode()
_SECOND = len("2026-01-01T00:00:00")
# What Argo's executor says of itself, at times behind a line that the command did not end.
_VALUE = rb'(?:"(?:[^"\\]|\\.)*"|[^\s"]*)'
_FIELDS = rb"time=" + _VALUE + rb" level=\w+ msg=" + _VALUE + rb"(?: \w+=" + _VALUE + rb")*?"
_ARGO = re.compile(_FIELDS + rb" argo=true(?: .*)?$")
_ARGOS_LAST = (b'"sub-process exited"', b'"file signal handler exiting')


class LogGone(Exception):  # noqa: N818 (reads as the sentence it is)
    """The pod is not there any more, and its output with it."""


class PodLog:
    """The output of one attempt, read on from where the last reading ended.

    The API can only be asked for lines since a whole second. So those of the last two seconds are remembered, and not
    given twice. They may be millions: of each a hash is kept.
    """

    def __init__(self, api: Api, attempt: Attempt) -> None:
        self.attempt = attempt
        self.api = api
        self._since: bytes | None = None  # the second before the last one that was seen
        self._seen: dict[bytes, array[int]] = {}  # by their second, in the order in which they came
        self._response: Any = None
        self._exited = False  # Argo's executor has said so
        self.closed = False

    def read(self, since: float | None = None, tail: int | None = None, follow: bool = False) -> Iterator[LogLine]:
        """New lines; with `follow` as they come, until the container has ended or the connection is lost.

        `since` (unix seconds) and `tail` are for the first reading. Raises LogGone, EngineError.
        """
        query = {"container": MAIN, "timestamps": "true"}
        if follow:
            query["follow"] = "true"
        known = {second: (0, len(hashes)) for second, hashes in self._seen.items()}  # of these may come again
        if self._since is not None:
            query["sinceTime"] = self._since.decode() + "Z"
        elif since is not None:
            query["sinceTime"] = datetime.fromtimestamp(int(since), UTC).isoformat().replace("+00:00", "Z")
        if tail is not None and self._since is None:
            query["tailLines"] = str(tail + ARGOS_LINES)
        for raw in self._lines(query, follow):
            if self._comes_again(raw, known):
                continue
            self._remember(raw)
            if (line := self._parse(raw)) is not None:
                yield line

    def is_whole(self) -> bool:
        """Whether it has all that the attempt wrote: of a long log a node keeps the last part only, at worst what
        Argo's executor says at the end, and of a pod that was deleted at its start and made again nothing.

        The first to write is always the executor, too. Raises LogGone, EngineError.
        """
        query = {"container": MAIN, "limitBytes": str(MOST_BEGINNING)}
        first = list(self._lines(query, follow=False))
        if not first:
            return True
        begins = _ARGO.match(first[0]) is not None and not any(words in first[0] for words in _ARGOS_LAST)
        return begins and _EARLIER_POD not in first

    def close(self) -> None:
        """Ends a reading that waits, from another thread."""
        self.closed = True
        with contextlib.suppress(Exception):
            if self._response is not None:
                self._response.shutdown()

    def _lines(self, query: dict[str, str], follow: bool) -> Iterator[bytes]:
        import urllib3

        pod = self.attempt.pod
        what = f"read the log of pod {pod} in namespace {self.api.namespace}"
        path = self.api.path(PODS, pod, "log")
        try:
            with self.api.open("GET", path, what, query, {"Accept": "*/*"}, read_timeout=SILENCE) as response:
                self._response = response
                if not self.closed:
                    yield from _of_the_container(lines(response, ended_only=follow))
        except ApiError as error:
            if error.status == 404:
                raise LogGone from None
            if error.status != 400:  # it has not started yet
                raise
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            pass  # the connection is lost; what it brought is kept

    def _comes_again(self, raw: bytes, known: dict[bytes, tuple[int, int]]) -> bool:
        second = raw[:_SECOND]
        begin, end = known.get(second, (0, 0))
        if begin == end:
            return False
        try:  # where a node has turned to a new file, the first ones are missing
            known[second] = self._seen[second].index(hash(raw), begin, end) + 1, end
        except ValueError:
            return False
        return True

    def _remember(self, raw: bytes) -> None:
        second = raw[:_SECOND]
        if second not in self._seen:
            try:
                since = (datetime.fromisoformat(second.decode()) - timedelta(seconds=1)).isoformat().encode()
            except ValueError:
                return
            self._since = max(self._since or since, since)
            self._seen = {kept: hashes for kept, hashes in self._seen.items() if kept >= self._since}
            self._seen[second] = array("q")
        self._seen[second].append(hash(raw))

    def _parse(self, raw: bytes) -> LogLine | None:
        if self._exited and _FAREWELL.search(raw) is not None:
            return None
        if (argo := _ARGO.search(raw)) is not None:
            self._exited = self._exited or b'"sub-process exited"' in raw
            raw = raw[: argo.start()]
            if raw.endswith(b" ") and raw.count(b" ") == 1:  # nothing but the time
                return None
        stamp, _, text = raw.decode(errors="replace").partition(" ")
        try:
            moment = datetime.fromisoformat(stamp).timestamp()
        except ValueError:
            moment, text = None, raw.decode(errors="replace")
        return LogLine(self.attempt.source, self.attempt.number, moment, text)


def _of_the_container(found: Iterator[bytes]) -> Iterator[bytes]:
    """Raises LogGone where it is the kubelet that speaks: the pod is there, its container is not."""
    for line in found:
        if line.startswith(_NO_LOG):  # the container's lines begin with their times
            raise LogGone
        yield line
