"""What a helper tells the API server, from a thread of its own: a server that does not answer must not hold it up."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from .kube import FIRST_PAUSE, LONGEST_PAUSE, KubeError, after


@dataclass
class _Letter:
    call: Callable[[], object]
    due: float
    pause: float = FIRST_PAUSE
    under_way: bool = False


class Outbox(threading.Thread):
    """Carries out calls, each by itself and again until it succeeds or can't; `chore` every `interval` seconds."""

    def __init__(self, chore: Callable[[], object], interval: float) -> None:
        super().__init__(name="outbox", daemon=True)
        self._chore, self._interval, self._chore_due = chore, interval, 0.0
        self._letters: dict[str, _Letter] = {}
        self._changed = threading.Condition()
        self._hurry = self._closed = False

    def put(self, name: str, call: Callable[[], object], delay: float = 0.0) -> None:
        """`name` says what `call` does. It takes the place of one of the same name that waits, and its turn."""
        with self._changed:
            letter, waiting = _Letter(call, time.monotonic() + delay), self._letters.get(name)
            if waiting is not None and not waiting.under_way:
                letter.due, letter.pause = min(letter.due, waiting.due), waiting.pause
            self._letters[name] = letter
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Waits until all is done, delayed ones at once. Whether it is."""
        with self._changed:
            self._hurry = True
            for letter in self._letters.values():
                letter.due = 0.0
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._letters, seconds)
            self._hurry = False
        return done

    def close(self) -> None:
        """What is not done is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                name, letter = min(self._letters.items(), key=lambda item: item[1].due, default=("", None))
                if letter is None or letter.due > now:
                    if now < self._chore_due or self._hurry:
                        due = min(self._chore_due, letter.due if letter else self._chore_due)
                        self._changed.wait(max(0.01, due - now))
                        continue
                    letter = None
                else:
                    letter.under_way = True
            if letter is None:
                self._do_chore()
            else:
                self._carry_out(name, letter)

    def _do_chore(self) -> None:
        try:
            self._chore()
        except KubeError as error:
            if not error.passing:
                print(error, file=sys.stderr, flush=True)
        self._chore_due = time.monotonic() + self._interval

    def _carry_out(self, name: str, letter: _Letter) -> None:
        try:
            letter.call()
        except KubeError as error:
            if error.passing:
                letter.due = time.monotonic() + after(error, letter.pause)
                letter.pause = min(2 * letter.pause, LONGEST_PAUSE)
                letter.under_way = False
                return
            print(f"not done: {name}: {error}", file=sys.stderr, flush=True)
        with self._changed:
            if self._letters.get(name) is letter:
                del self._letters[name]
            self._changed.notify_all()
