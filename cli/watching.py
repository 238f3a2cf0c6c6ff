"""Staying with a Workflow until it has ended: its tree, drawn anew on a terminal, else a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import click

from . import text, tree
from .following import LinePrinter
from .screen import Screen, in_batches
from .settings import on_terminal

if TYPE_CHECKING:
    from ..engines.base import LogLine
    from ..engines.local.engine import LocalEngine
    from ..engines.tree import Item

Workflow = dict[str, Any]
MOST_WAITING = 3  # suspended nodes whose whole messages stand below the tree
MOST_FAILED, LAST_LINES = 3, 10  # pods whose last lines are shown, and how many


class Watch:
    """Follows `job_id` on `stream`. With `logs`, what its pods write goes to stdout."""

    def __init__(self, engine: LocalEngine, job_id: str, stream: TextIO, logs: bool) -> None:
        self._engine, self._job_id, self._stream, self._logs = engine, job_id, stream, logs
        self._screen = Screen(stream) if on_terminal(stream) else None
        self._phases: dict[str, tuple[str, str]] = {}
        self._print = LinePrinter(prefixed=True)

    def to_end(self) -> Workflow:
        """Returns the Workflow once it has ended or is halted."""
        last: Workflow = {}
        for batch in self._batches():
            last = next((item for item in reversed(batch) if isinstance(item, dict)), last)
            if lines := [item for item in batch if not isinstance(item, dict)]:
                if self._screen:
                    self._screen.clear()
                self._print.lines(lines)
            if last:
                self._show(last)
        return last

    def _batches(self) -> Iterator[list[Workflow | LogLine]]:
        watch: Callable[[], Iterator[Workflow | LogLine]] = partial(self._engine.watch_workflow, self._job_id)
        if self._logs:
            return in_batches(watch, partial(self._engine.logs, self._job_id, follow=True))
        return in_batches(watch) if self._screen else ([workflow] for workflow in watch())

    def _show(self, workflow: Workflow) -> None:
        from ..engines.tree import WAITING, forest, inner_first, rows

        trees = forest(workflow)
        now = time.time()
        if self._screen:
            columns, height = text.terminal_size()
            waiting = [f"{i.mark} {i.path}: {i.message}" for i in inner_first(trees) if i.mark == WAITING][
                :MOST_WAITING
            ]
            most = height - 2 - 2 * len(waiting)
            shown = tree.lines(rows(trees, most), now, columns) if trees else [_waits(workflow)]
            shown += [text.printable(line) for line in waiting]
            self._screen.draw(shown)
            return
        for item in self._changed(trees):
            words = [time.strftime("%H:%M:%S"), f"{item.mark} {item.phase:<9}", text.printable(item.label)]
            said = [tree.took(item, now) if item.finished else "", text.printable(item.message)]
            click.echo("  ".join([*words, *filter(None, said)]).rstrip(), file=self._stream)
        self._stream.flush()

    def _changed(self, trees: list[Item]) -> list[Item]:
        """Those with news: inner nodes end before outer ones and begin after them. To be Pending for no reason is
        none."""
        from ..engines.tree import inner_first, rows

        changed = [i for i in inner_first(trees) if self._phases.get(i.id) != (i.phase, i.message)]
        self._phases |= {item.id: (item.phase, item.message) for item in changed}
        ended = [item for item in changed if item.finished is not None]
        news = {i.id for i in changed if i.finished is None and (i.phase != "Pending" or i.message)}
        begun = [row.item for row in rows(trees) if row.item is not None and row.item.id in news]
        return sorted(ended + begun, key=_moment)


def _moment(item: Item) -> tuple[float, int]:
    """Argo's times are whole seconds: in one of them a node that others have ended in began before, others after."""
    if item.finished is not None:
        return item.finished, 1
    return item.started or float("inf"), 0 if _ended_in(item) else 2


def _ended_in(item: Item) -> bool:
    return any(child.finished is not None or _ended_in(child) for child in item.children)


def _waits(workflow: Workflow) -> str:
    return text.printable((workflow.get("status") or {}).get("message") or "starting")


def tell_failures(engine: LocalEngine, workflow: Workflow) -> None:
    """The last lines of pods that failed, on stderr: most often they say why."""
    from ..engines.nodes import failed_leaves, raw_nodes
    from ..engines.tree import node_path

    name = workflow["metadata"]["name"]
    for node in failed_leaves(raw_nodes(workflow.get("status") or {}).values())[:MOST_FAILED]:
        lines = list(engine.logs(name, step=node["id"], tail=LAST_LINES))
        if lines:
            click.echo(f"Last lines of {text.printable(node_path(name, node))}:", err=True)
            LinePrinter(prefixed=False, stream=sys.stderr, indent="  ").lines(lines)
