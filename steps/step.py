"""What the steps that move bytes share: the job they work for, how they speak, and how they end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from ..learner import contract
from .retrying import Halted, Stop
from .storage import StoreError, printable

STOP_GRACE = 1.0  # seconds that work has to end by itself when asked to stop


@dataclass(frozen=True)
class Job:
    """The job as a step finds it: `id`, and what its ConfigMap says."""

    id: str
    spec: contract.JobSpec

    @classmethod
    def load(cls) -> Job:
        name = config_file(contract.JOB_FILE)
        try:
            with open(name, encoding="utf-8") as stream:
                spec = contract.JobSpec.from_json(stream.read())
            return cls(os.environ[contract.JOB_ID_ENV], spec)
        except KeyError:
            raise StoreError(f"{contract.JOB_ID_ENV} is not set", permanent=True) from None
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"{name} can't be read: {error}", permanent=True) from None


def config_file(name: str) -> str:
    return contract.path(f"{contract.CONFIG_DIR}/{name}")


def say(line: str) -> None:
    print(printable(line), flush=True)


def complain(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def run(name: str, work: Callable[[Stop], None], failed: Callable[[str], None] | None = None, marker: str = "") -> None:
    """Runs a step to its exit code: 0, 75 when asked to stop, 70 with one line for what trying again won't help.

    The reason of a 70 is left in the journal under `name` and given to `failed`. Does not return: a request that stands
    still must not hold up the end, and what is on disk may be left at any moment.
    """
    _hold_little_memory()
    status: list[int] = []
    stop = Stop(marker).listen()

    def guarded() -> None:
        try:
            work(stop)
            forget_failure(name)
            status.append(contract.EXIT_DONE)
        except Halted:
            status.append(contract.EXIT_AGAIN)
        except StoreError as error:
            reason = printable(f"{name}: {error}")
            complain(reason)
            note_failure(name, reason)
            if failed is not None:
                failed(reason)
            status.append(contract.EXIT_FINAL)
        except BaseException:  # noqa: BLE001 - a bug must not look like an order to stop
            traceback.print_exc()
            status.append(1)

    # In a thread of its own: while the client waits for an answer no signal would be heard.
    worker = threading.Thread(target=guarded, daemon=True)
    worker.start()
    while worker.is_alive() and not stop.asked():
        worker.join(0.1)
    worker.join(STOP_GRACE)
    ended = status[0] if status else contract.EXIT_AGAIN
    if ended == contract.EXIT_AGAIN:
        say(f"{name}: asked to stop; what is verified stays")
    sys.stdout.flush()
    os._exit(ended)


def _hold_little_memory() -> None:
    """A heap for each of the client's threads would keep several times what is in use."""
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(-8, 2)  # M_ARENA_MAX


def note_failure(step: str, reason: str) -> None:
    """Leaves why a step failed where the helper and the exit step find it."""
    try:
        os.makedirs(os.path.dirname(_failure(step)), exist_ok=True)
        contract.atomic_write(_failure(step), json.dumps({"reason": reason, "at": time.time()}).encode("ascii"))
    except OSError as error:
        complain(f"the reason can't be kept in the journal: {error.strerror}")


def forget_failure(step: str) -> None:
    if os.path.exists(_failure(step)):
        os.unlink(_failure(step))


def _failure(step: str) -> str:
    return contract.path(f"{contract.JOURNAL_DIR}/{contract.FAILURES_DIR}/{step}.json")


class Progress:
    """`N/M` for Argo and, now and then, a line for people; in megabytes. `advance` may be called by several threads."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._done, self._clock = total, 0, clock
        self._file = os.environ.get("ARGO_PROGRESS_FILE", "")
        self._written = self._told = clock()

    def advance(self, size: int) -> None:
        self._done += size
        now = self._clock()
        if now - self._written >= 1:
            self._written = now
            self._write(min(self._done, self._total))
        if now - self._told >= 10:
            self._told = now
            say(f"{min(self._done, self._total) / 1e6:.0f} of {self._total / 1e6:.0f} MB")

    def finish(self) -> None:
        self._write(self._total)

    def _write(self, done: int) -> None:
        megabytes = max(1, round(self._total / 1e6))
        # Never more than what is there; and the whole only when all of it is.
        text = f"{megabytes if done >= self._total else min(int(done / 1e6), megabytes)}/{megabytes}"
        if self._file:
            try:
                with open(self._file, "w", encoding="ascii") as stream:
                    stream.write(text + "\n")
            except OSError:
                self._file = ""
