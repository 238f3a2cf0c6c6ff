"""The helper's memory: what a job has decided, kept so that the next helper goes on from it.

A folder with a file per epoch. Each begins with the whole state as its epoch found it and grows by records, one JSON
line each, synced before anyone hears of what they say. A reader takes the highest epoch; a torn last line is not there.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from ..learner import contract

Record = dict[str, Any]
_FILE = re.compile(r"epoch-(\d+)\.jsonl")
_KEPT = 3  # files of earlier epochs that stay, for whoever looks for what happened


@dataclass
class State:
    """What must last. Learners by index, times in seconds of running."""

    generation: int = 0
    step: int = -1  # which the learners of this generation that train together go on from; -1: from the beginning
    done: list[int] = field(default_factory=list)
    failed: dict[int, int] = field(default_factory=dict)  # final failures: index -> exit code of its agent
    granted: dict[int, int] = field(default_factory=dict)  # restarts granted to the user's own failures
    again: dict[int, int] = field(default_factory=dict)  # a user's own 75s since the last checkpoint
    checkpoints: dict[int, int] = field(default_factory=dict)  # last step committed
    of: dict[int, int] = field(default_factory=dict)  # how many there are to be, where the learner says it
    completed: bool = False
    ended: str = ""  # why the job was ended by protocol
    running: float = 0.0
    unshipped: str = ""  # what a halt left behind, to be shipped on resume

    def apply(self, record: Record) -> None:
        """Changes the state as `record` says; one of an unknown kind changes nothing."""
        kind, index = record.get("kind"), int(record.get("index", -1))
        if kind == "world":
            self.generation, self.step = int(record["generation"]), int(record.get("step", -1))
        elif kind == "done" and index not in self.done:
            self.done.append(index)
        elif kind == "granted":
            self.granted[index] = self.granted.get(index, 0) + 1
        elif kind == "again":
            self.again[index] = 1 if record.get("progressed") else self.again.get(index, 0) + 1
        elif kind == "checkpoint":
            self.checkpoints[index] = int(record["step"])
            if record.get("of"):
                self.of[index] = int(record["of"])
            self.again.pop(index, None)
        elif kind == "completed":
            self.completed = True
        elif kind == "ended":
            self.ended = self.ended or str(record["reason"])
            if index >= 0:
                self.failed[index] = int(record["code"])
        elif kind == "running":
            self.running = float(record["seconds"])
        elif kind == "unshipped":
            self.unshipped = str(record["what"])


class Journal:
    """The journal of epoch `epoch`, open for appending. `state` is what it adds up to."""

    def __init__(self, folder: str, epoch: int) -> None:
        os.makedirs(folder, exist_ok=True)
        target = os.path.join(folder, f"epoch-{epoch}.jsonl")
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))  # an older helper that writes after this sees it
        self.state = read(folder)
        first = json.dumps({"kind": "state", **asdict(self.state)}) + "\n"
        contract.atomic_write(target, first.encode())
        self._stream = open(target, "ab", buffering=0)  # noqa: SIM115 - held for the helper's life
        _sync_folder(folder)
        for number in sorted(_epochs(folder))[: -_KEPT - 1]:
            os.unlink(os.path.join(folder, f"epoch-{number}.jsonl"))

    def write(self, record: Record) -> None:
        """Durable when it returns."""
        self._stream.write(json.dumps(record).encode() + b"\n")
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        self._stream.close()


def read(folder: str) -> State:
    """What the highest epoch's journal adds up to; a new State where there is none."""
    for number in sorted(_epochs(folder), reverse=True):
        with open(os.path.join(folder, f"epoch-{number}.jsonl"), "rb") as stream:
            lines = stream.read().split(b"\n")[:-1]  # what follows the last line end is torn, or nothing
        state = None
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                break
            if state is None:
                state = _state(record)
            else:
                state.apply(record)
        if state is not None:
            return state
    return State()


def highest(folder: str) -> int:
    """The highest epoch that has begun a journal; 0 for none."""
    return max(_epochs(folder), default=0)


def _state(record: Record) -> State:
    known = {name: value for name, value in record.items() if name in State.__dataclass_fields__}
    for name in ("failed", "granted", "again", "checkpoints", "of"):
        known[name] = {int(key): value for key, value in known.get(name, {}).items()}
    return State(**known)


def _epochs(folder: str) -> list[int]:
    try:
        return [int(match[1]) for name in os.listdir(folder) if (match := _FILE.fullmatch(name))]
    except FileNotFoundError:
        return []


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
