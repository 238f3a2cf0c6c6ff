"""What the coordinator asks of the helper around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .channel import Message


@dataclass(frozen=True)
class Send:
    conn: int
    message: Message


@dataclass(frozen=True)
class Close:
    conn: int
    why: str


@dataclass(frozen=True)
class Record:
    record: dict[str, Any]


@dataclass(frozen=True)
class Annotate:
    annotations: dict[str, str]


@dataclass(frozen=True)
class DeletePod:
    name: str
    force: bool = False  # it does not end by itself: forget it


@dataclass(frozen=True)
class Mark:
    """The job is halting: show it to agents that have no helper."""


@dataclass(frozen=True)
class Ship:
    """There is something new to ship."""


@dataclass(frozen=True)
class Stop:
    """Pods that can't start hear no END: the Workflow itself is stopped, with the reason in the same write."""

    annotations: dict[str, str]


Effect = Send | Close | Record | Annotate | DeletePod | Mark | Ship | Stop
Effects = Iterator[Effect]  # in the order in which they are to be carried out
