"""Where a learner's output goes: this pod's standard output, the training log, and through the extractor to metrics."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import time

from ..learner import contract
from .metrics import Extractor, Metrics, to_json

_NUMBERS_MOST = 50
_LINE_MOST = 1 << 16  # bytes of one line that the extractor sees


class Output:
    """`folder` is the learner's own in LOG_DIR. `step` and `numbers` are the last that were recorded.

    What can't be written is lost with one complaint: training goes on.
    """

    def __init__(self, folder: str, job_id: str, subid: str, extractor: Extractor | None) -> None:
        for place in (os.path.dirname(folder), folder):  # an earlier run of the command may have replaced them
            if os.path.islink(place) or os.path.isfile(place):
                os.unlink(place)
        os.makedirs(folder, exist_ok=True)
        self._log = _open(os.path.join(folder, contract.TRAINING_LOG))
        path = os.path.join(folder, contract.METRICS_FILE)
        self._metrics = _open(path)
        self._rindex = _count_lines(path)
        self._job_id, self._subid = job_id, subid
        self._extractor = extractor
        self.step: int | None = None
        self.numbers: dict[str, float] = {}
        self._line = b""
        self._complained = False
        self._last = 0.0

    def write(self, data: bytes) -> None:
        """What the command has written."""
        self._write(1, data)
        self._write(self._log.fileno(), data)
        if self._extractor is not None:
            self._last = time.monotonic()
            *lines, rest = (self._line + data).split(b"\n")
            self._line = rest[:_LINE_MOST]
            for line in lines:
                self._record(self._extractor.feed(line.decode("utf-8", "replace").rstrip("\r")))

    def say(self, text: str) -> None:
        """A word of ours among the command's."""
        line = f"ffdl: {text}\n".encode()
        self._write(1, line)
        self._write(self._log.fileno(), line)

    def record(self, found: list[tuple[Metrics, float]]) -> None:
        """Keeps records, each with its time in unix seconds."""
        lines = []
        for metrics, unix_time in found:
            self._rindex += 1
            lines.append(to_json(metrics, self._job_id, self._subid, self._rindex, unix_time))
            self._note(metrics)
        self._write(self._metrics.fileno(), "".join(lines).encode())

    def _note(self, metrics: Metrics) -> None:
        step = metrics.step()
        self.step = self.step if step is None else step
        self.numbers.update(metrics.numbers())
        while len(self.numbers) > _NUMBERS_MOST:
            del self.numbers[next(iter(self.numbers))]

    def idle(self, now: float) -> None:
        """To be called now and then: lines that wait for a second line are final when none comes."""
        if self._extractor is not None and self._last and now - self._last > 1.0:
            self._last = 0.0
            self._record(self._extractor.flush())

    def flush(self) -> None:
        """The command has ended."""
        if self._extractor is not None:
            if self._line:
                self._record(self._extractor.feed(self._line.decode("utf-8", "replace")))
                self._line = b""
            self._record(self._extractor.flush())

    def close(self) -> None:
        self.flush()
        self._log.close()
        self._metrics.close()

    def _record(self, found: list[Metrics]) -> None:
        now = time.time()
        self.record([(metrics, now) for metrics in found])

    def _write(self, descriptor: int, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError as error:
            if not self._complained:
                self._complained = True
                print(f"ffdl: some output is lost: {error}", file=sys.stderr)


def _open(path: str) -> io.FileIO:
    """Opens a file of the folder to append to. What an earlier run of the command has put in its place goes."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(2):
        with contextlib.suppress(OSError):
            stream = io.FileIO(os.open(path, flags, 0o666), "ab")
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return stream
            stream.close()
        with contextlib.suppress(OSError):
            os.unlink(path)
    return io.FileIO(os.devnull, "ab")


def _count_lines(path: str) -> int:
    try:
        with open(path, "rb") as stream:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
    except OSError:
        return 0
