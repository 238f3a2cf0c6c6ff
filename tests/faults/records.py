"""What runs of scenarios came to: lines of JSON, appended as they come, so that an interrupted run is gone on with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

HELD, SLOW, FAILED = "held", "too slow", "failed"
UNDISTURBED = "undisturbed"


def cache_folder() -> Path:
    """FFDL_FAULTS_CACHE, else `ffdl-faults` in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ffdl-faults"
    return Path(os.environ.get("FFDL_FAULTS_CACHE") or default).resolve()


@dataclass(frozen=True)
class Setting:
    """What was tested: records of one setting are comparable. `commit` ends in `+` where files were changed since.

    `finalizer` tells whether the controller captured how pods end by a finalizer; None in records that do not say.
    """

    commit: str
    argo: str
    kubernetes: str
    finalizer: bool | None = None


@dataclass(frozen=True)
class Record:
    """One run of a scenario. Times in unix seconds and seconds; `recovery` is None where there was none."""

    scenario: str
    setting: Setting
    at: float
    verdict: str
    recovery: float | None = None
    said: str = ""  # what went wrong, a line
    notes: list[str] = field(default_factory=list)
    load: float = 0.0  # of the machine, when the run began
    model: str = ""  # of an undisturbed run


class Records:
    """The file `records.jsonl` of a folder, and a story beside it for each run that failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "records.jsonl"

    def all(self) -> list[Record]:
        """Oldest first. A line that an interruption cut short is left out."""
        found = []
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            found.append(Record(**{**values, "setting": Setting(**values["setting"])}))
        return found

    def add(self, record: Record, story: str = "") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = not self.file.exists() or self.file.read_bytes()[-1:] in (b"\n", b"")
        with self.file.open("a") as stream:
            stream.write(("" if whole else "\n") + json.dumps(asdict(record)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        if story:
            self.story(record).parent.mkdir(exist_ok=True)
            self.story(record).write_text(story)

    def story(self, record: Record) -> Path:
        """Where the story of a run lies."""
        name = "".join(letter if letter.isalnum() else "-" for letter in record.scenario)
        return self.folder / "stories" / f"{name}-{record.at:.0f}.txt"


def of(records: Iterable[Record], scenario: str, setting: Setting) -> list[Record]:
    """The runs of a scenario in a setting."""
    return [record for record in records if record.scenario == scenario and record.setting == setting]


def latest(records: Iterable[Record], scenario: str) -> list[Record]:
    """The runs of a scenario in the setting in which it was run last."""
    runs = [record for record in records if record.scenario == scenario]
    return [record for record in runs if record.setting == runs[-1].setting]
