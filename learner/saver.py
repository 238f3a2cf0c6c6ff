"""Saves one training's states into one folder: `snapshot` copies in memory, a thread then persists the copy."""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
import time
from typing import Any, Callable, Dict, Optional, Set

from . import checkpoint, encoding

TRIES = 3
PAUSE = 1.0  # seconds before the next try, when a state must be saved
LONGEST_PAUSE = 60.0  # it doubles up to this, as long as training goes on meanwhile


def warn(text: str) -> None:
    """One line for the training's log."""
    print(f"ffdl: {text}", file=sys.stderr, flush=True)


class Saver:
    """`about` goes into every marker (generation, epoch, world_size); `on_commit(step)` follows once a step is durable.

    The last `keep` stay, and that of `spared`, the newest step that all who train together have.
    Saving fails without an exception: with one warning for each distinct error. The last committed checkpoint stays.
    """

    def __init__(
        self, folder: str, keep: int, about: Dict[str, int], on_commit: Callable[[int], None], pause: float = PAUSE
    ) -> None:
        self.folder = folder
        self.keep = keep
        self.about = about
        self.spared: Optional[int] = None
        self._on_commit = on_commit
        self._pause = pause
        self._arena = Arena()
        self._saving = False
        self._thread: Optional[threading.Thread] = None  # only while there is work: scripts may fork in between
        self._enough = threading.Event()  # what can't be written is not tried again
        self._warned: Set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether a state is still being saved."""
        thread = self._thread
        return self._saving or (thread is not None and thread.is_alive())

    def prepare(self, state: Any, copies: bool) -> None:
        """Checks that `state` can be saved. For `copies` to come, a thread gets the memory. Raises TypeError."""
        size = encoding.encode(state).size
        self.finish()
        if copies:
            self._start(self._arena.reserve, size)

    def snapshot(self, step: int, state: Any, insists: bool = False) -> None:
        """Copies `state` and returns; a thread persists the copy. Waits for the snapshot before. Raises TypeError.

        `insists`: what can't be written is tried again, and the saver stays busy, until `finish` or another save.
        """
        encoded = encoding.encode(state)
        self.finish()
        try:
            encoded.contents = self._arena.hold(encoded)
        except MemoryError:
            self._complain(
                "memory", f"checkpoint of step {step}: no memory for a copy of the state ({encoded.size} bytes)"
            )
            return
        self._start(self._insist if insists else self._persist, step, encoded)

    def save(self, step: int, state: Any) -> bool:
        """Whether `state` could be committed; it is durable then. Raises TypeError."""
        encoded = encoding.encode(state)
        self.finish()
        self._saving = True
        try:
            for attempt in range(TRIES):
                if attempt:
                    time.sleep(self._pause)
                if self._persist(step, encoded):
                    return True
            return False
        finally:
            self._saving = False

    def finish(self) -> None:
        """Waits until nothing is being persisted."""
        if self._thread is not None:
            self._enough.set()
            self._thread.join()
            self._thread = None

    def _start(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._enough.clear()
        self._thread = threading.Thread(target=work, args=arguments, name="ffdl-checkpoint")
        self._thread.start()

    def _insist(self, step: int, encoded: encoding.Encoded) -> None:
        pause = self._pause
        while not self._persist(step, encoded) and not self._enough.wait(pause):
            pause = min(2 * pause, LONGEST_PAUSE)

    def _persist(self, step: int, encoded: encoding.Encoded) -> bool:
        try:
            self._write(step, encoded)
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            self._complain(
                reason,
                f"checkpoint of step {step} could not be written to {self.folder} ({reason}); "
                "training goes on and the last committed checkpoint stays",
            )
            return False
        self._warned.clear()
        with contextlib.suppress(OSError):  # before it is told: who hears of it looks what there is
            checkpoint.prune(self.folder, self.keep, self.spared)
        self._on_commit(step)
        return True

    def _write(self, step: int, encoded: encoding.Encoded) -> None:
        document = encoded.document()
        try:
            checkpoint.write(self.folder, step, document, encoded.contents, **self.about)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The one that would go next makes room; with the new one there are `keep` again.
            checkpoint.prune(self.folder, self.keep - 1, self.spared)
            checkpoint.write(self.folder, step, document, encoded.contents, **self.about)

    def _complain(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn(text)


class Arena:
    """Memory for the copy of a state, kept from one snapshot to the next: fresh memory costs several times the copy."""

    def __init__(self) -> None:
        self._memory: Any = None

    def reserve(self, size: int) -> None:
        """Gets `size` bytes, and touches them so that the system really hands them out."""
        if size:
            import numpy

            try:
                self._memory = numpy.empty(size, numpy.uint8)
                self._memory.fill(0)
            except MemoryError:
                self._memory = None  # the snapshot says so

    def hold(self, encoded: encoding.Encoded) -> Any:
        """Copies of the arrays of `encoded`, valid until the next call. Bytes are immutable and stay as they are."""
        if all(type(content) is bytes for content in encoded.contents):
            return encoded.contents
        import numpy

        if self._memory is None or len(self._memory) < encoded.size:
            self._memory = None  # before the new one: only one copy at a time
            self._memory = numpy.empty(encoded.size, numpy.uint8)
        copies = []
        for index, content in enumerate(encoded.contents):
            if type(content) is not bytes:
                copy = numpy.ndarray(content.shape, content.dtype, self._memory, encoded.buffers[index]["offset"])
                numpy.copyto(copy, content)
                content = copy
            copies.append(content)
        return copies
