"""Lines at the bottom of a terminal that are drawn anew in place, and the pace at which that is done."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

import click

from . import text

REDRAW = 0.25  # seconds, at the most often
T = TypeVar("T")


class Screen:
    """What was drawn last on `stream`, a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._drawn = stream, 0

    def draw(self, lines: list[str]) -> None:
        """Draws `lines`, which may hold colours, over the last ones: never more than the terminal is high."""
        columns, rows = shutil.get_terminal_size()
        if len(lines) >= rows:
            lines = [*lines[: rows - 2], f"… and {len(lines) - rows + 2} more lines"]
        click.echo(f"{self._back()}\r\x1b[J" + "\n".join(lines), file=self._stream, color=text.coloured())
        self._stream.flush()
        self._drawn = sum(max(1, -(-text.width_of(click.unstyle(line)) // columns)) for line in lines)

    def clear(self) -> None:
        """Takes the lines away; the next ones are drawn where the cursor is then."""
        if self._drawn:
            self._stream.write(f"{self._back()}\r\x1b[J")
            self._stream.flush()
            self._drawn = 0

    def leave(self) -> None:
        """The last lines stay."""
        self._drawn = 0

    def _back(self) -> str:
        return f"\x1b[{self._drawn}A" if self._drawn else ""


def in_batches(*sources: Callable[[], Iterable[T]]) -> Iterator[list[T]]:
    """What all sources yield, each in a thread of its own: together where it comes fast; an empty list once a second,
    for ages and ETAs. Ends with the last source; raises what one raises."""
    changes: queue.SimpleQueue[T | _End] = queue.SimpleQueue()

    def pump(source: Callable[[], Iterable[T]]) -> None:
        error: Exception | None = None
        try:
            for item in source():
                changes.put(item)
        except Exception as raised:  # noqa: BLE001 (raised again where it is read)
            error = raised
        changes.put(_End(error))

    for source in sources:
        threading.Thread(target=pump, args=(source,), daemon=True).start()
    left = len(sources)
    while left:
        batch: list[T] = []
        try:
            item = changes.get(timeout=1.0)
            until = time.monotonic() + REDRAW
            while True:
                if not isinstance(item, _End):
                    batch.append(item)
                elif item.error is not None:
                    raise item.error
                else:
                    left -= 1
                    if not left:
                        break
                item = changes.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            pass
        yield batch


class _End:
    """That of a source, with the error that it ended with, if any."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
