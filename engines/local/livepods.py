"""The pods of a job that have not ended, as far as its runner knows: what was last seen of each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import supervisor
from .notify import Watcher
from .pod import PodObservation

NEWS = ("result.json", "state.json")  # files of a pod that, when they are replaced, say what has become of it
LOOK_AGAIN = 1.0  # progress, and supervisors that died without a word


class LivePods:
    """Those in `folder`, each a folder of its own; `watcher` says which of them have news."""

    def __init__(self, folder: Path, watcher: Watcher) -> None:
        self._folder, self._watcher = folder, watcher
        self._seen: dict[str, PodObservation | None] = {}
        self._looked = 0.0
        for entry in os.scandir(folder):  # also those that no node wants any more
            if not os.path.exists(f"{entry.path}/result.json"):
                self.add(entry.name)

    def add(self, name: str) -> None:
        """From now on `name` is looked at; its folder need not be there yet."""
        self._seen.setdefault(name, None)
        self._watcher.watch(self._folder / name, *NEWS)

    def observe(self) -> Mapping[str, PodObservation]:
        """What is known of those that were ever started. One that has ended is in it until `forget`."""
        changed = self._watcher.changed()
        now = time.monotonic()
        if changed is None or now - self._looked >= LOOK_AGAIN:
            changed, self._looked = set(self._seen), now
        for name, seen in self._seen.items():
            if (seen is None or name in changed) and not (seen is not None and seen.ended):
                self._seen[name] = supervisor.observe(self._folder / name)
        return {name: seen for name, seen in self._seen.items() if seen is not None}

    def may_wait(self, news: set[str] | None) -> bool:
        """Whether `news` (names of folders) is only of pods that have begun: they may end before one has looked."""
        if not news:
            return False
        return all(name in self._seen and not (self._folder / name / NEWS[0]).exists() for name in news)

    def forget(self, names: Iterable[str]) -> None:
        """Their ends are written down."""
        for name in names:
            if self._seen.pop(name, None) is not None:
                self._watcher.forget(self._folder / name)
