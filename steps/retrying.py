"""Trying again: what fails in passing is repeated with a growing pause, within a bound; what is asked to stop stops."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .storage import StoreError, printable

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0  # seconds
TRIES_OF_THE_PERMANENT = 3
T = TypeVar("T")


class Halted(Exception):  # noqa: N818
    """Asked to stop: what is verified stays, the next attempt goes on."""


class Stop:
    """Set by SIGTERM, SIGINT or the appearance of a marker file."""

    def __init__(self, marker: str = "") -> None:
        self._event, self._marker, self._looked = threading.Event(), marker, 0.0

    def listen(self) -> Stop:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._event.set())
        return self

    def asked(self) -> bool:
        if self._marker and not self._event.is_set() and time.monotonic() - self._looked > 0.2:
            self._looked = time.monotonic()
            if os.path.exists(self._marker):
                self._event.set()
        return self._event.is_set()

    def check(self) -> None:
        """Raises Halted when asked to stop."""
        if self.asked():
            raise Halted

    def wait(self, seconds: float) -> None:
        """A pause that an end is put to by Halted."""
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            self._event.wait(min(left, 0.25))
            self.check()


class Patience:
    """Runs actions until they succeed, or until nothing has succeeded for `seconds`. For several threads.

    `clock` gives seconds, `wait` pauses for seconds (and may raise Halted), `say` takes a line for people.
    """

    def __init__(
        self,
        seconds: float,
        wait: Callable[[float], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds, self._wait, self._say, self._clock = seconds, wait, say, clock
        self._good = clock()
        self._told = -1e9

    def run(self, action: Callable[[], T]) -> T:
        """Raises StoreError: at once for what is permanent (after a few tries), else when the patience is used up."""
        pause, tries, began = FIRST_PAUSE, 0, self._clock()
        while True:
            try:
                result = action()
            except StoreError as error:
                tries += 1
                now = self._clock()
                left = max(self._good, began) + self.seconds - now
                if left <= 0 or (error.permanent and tries >= TRIES_OF_THE_PERMANENT):
                    raise
                if now - self._told >= 10:
                    self._told = now
                    self._say(f"trying again: {printable(str(error))}")
                self._wait(min(pause * random.uniform(0.7, 1.3), max(left, 0.01)))
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._good = self._clock()
                return result
