"""What every engine can do with a job, and its errors. The command line and `Client` know engines only by this."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from ..workflows.compile import Compiled
    from .status import JobStatus

NORMAL, WARNING = "Normal", "Warning"
RESULTS, DEFINITION, TRAINEDMODEL, CHECKPOINT = "results", "definition", "trainedmodel", "checkpoint"


class EngineError(Exception):
    """An engine could not be reached or would not do something. Its text is one line for the person at the terminal."""

    exit_code = 4


class Damaged(EngineError):  # noqa: N818
    """A file of the engine's own that is not what the engine wrote."""


class NoSuchJob(EngineError):  # noqa: N818 (reads as the sentence it is)
    """No job of that id in this engine."""

    exit_code = 2


class Refused(EngineError):  # noqa: N818
    """The request can't be met, now or ever: a job too large, an unsupported field, `resume` of a finished job."""

    exit_code = 2


@dataclass(frozen=True)
class LogLine:
    """One line of a pod's output. `source` is its display name (`learner-1`, `download`); `time` in unix seconds."""

    source: str
    attempt: int
    time: float | None
    text: str


@dataclass(frozen=True)
class Selection:
    """Which lines of a log are wanted; `learner` and `attempt` count from 1, `since` is a unix time."""

    learner: int | None = None
    step: str | None = None
    attempt: int | None = None
    tail: int | None = None
    since: float | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened to a job or one of its nodes. `kind` is Normal or Warning, `time` in unix seconds."""

    time: float
    source: str
    kind: str
    reason: str
    message: str


class Engine(Protocol):
    """Where compiled Workflows run. Job ids are whole ids; every method given one raises NoSuchJob if it is unknown."""

    name: str

    def submit(self, compiled: Compiled, job_id: str) -> None:
        """Creates the job and starts it; returns once it is recorded.

        Raises Refused for a job that can never run here.
        """

    def ids(self) -> Sequence[str]:
        """All job ids, newest first. Cheap: reads no job."""

    def workflow(self, job_id: str) -> dict[str, Any]:
        """The whole Workflow object, its status included."""

    def status(self, job_id: str) -> JobStatus: ...

    def list(self) -> Sequence[JobStatus]:
        """Every job's status, newest first."""

    def watch(self, job_id: str | None = None, timeout: float | None = None) -> Iterator[JobStatus]:
        """Present statuses first, then one at each change. Ends when the one job is terminal, or after `timeout` s."""

    def logs(
        self,
        job_id: str,
        *,
        learner: int | None = None,
        step: str | None = None,
        attempt: int | None = None,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
    ) -> Iterator[LogLine]:
        """Output of the learners (of `learner`, counted from 1), or of the step `step`.

        `attempt` counts from 1 (default: all), `tail` keeps the last lines of each source, `since` is a unix time. With
        `follow` it ends when the job is terminal or HALTED and its last line is out.
        """

    def metrics(self, job_id: str, follow: bool = False) -> Iterator[dict[str, Any]]:
        """EMetrics records, oldest first; `follow` ends as in `logs`."""

    def events(self, job_id: str) -> Sequence[Event]:
        """Oldest first."""

    def halt(self, job_id: str, wait: bool = True, timeout: float | None = None) -> None:
        """Asks for a halt; with `wait` returns when the job is HALTED or terminal.

        Raises EngineError after `timeout` seconds, Refused for a finished job.
        """

    def until_halted(self, job_id: str, timeout: float | None = None) -> None:
        """Returns when a job that was asked to halt is HALTED or terminal.

        Raises EngineError after `timeout` seconds, and where the job was resumed meanwhile.
        """

    def resume(self, job_id: str) -> None:
        """Lets a halted job go on. Raises Refused for a finished one."""

    def stop(self, job_id: str) -> None:
        """Ends the job; its results and logs are stored all the same. Returns at once.

        Raises Refused for a finished job.
        """

    def resubmit(self, job_id: str, new_id: str, from_checkpoint: bool = False) -> None:
        """Runs the same object again as a new job: from its beginning, or from the last checkpoint that it stored.

        Raises Refused where it can have none.
        """

    def delete(self, job_id: str, results: bool = False) -> None:
        """Ends the job if it runs and removes all of it; what it stored stays unless `results`."""

    def download(self, job_id: str, what: str, folder: Path) -> Path:
        """Writes RESULTS, DEFINITION, TRAINEDMODEL or CHECKPOINT of a job under `folder`; returns what was written."""
