"""What runner, operator and supervisor say to each other about a pod. Plain data, JSON on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Mount:
    """`sub_path` of `volume` shows up at `path` in the container."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Volume:
    """`kind`: `folder` (bound), `overlay` (bound, writes go to the pod's own scratch), `empty` (the pod's own)."""

    kind: str
    path: str = ""


@dataclass(frozen=True)
class Container:
    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)  # the whole environment
    cwd: str = "/"
    mounts: list[Mount] = field(default_factory=list)


@dataclass(frozen=True)
class Output:
    """An output parameter: the contents of the file `path` when the main container ends, else `default`."""

    name: str
    path: str
    default: str | None = None


@dataclass(frozen=True)
class PodSpec:
    """Everything the supervisor needs to run a pod. Memory in bytes (None: no limit), grace in seconds."""

    name: str
    main: Container
    init: list[Container] = field(default_factory=list)
    volumes: dict[str, Volume] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    hostname: str = ""
    address: str = "127.0.0.1"
    hosts: str = ""  # file shown as /etc/hosts
    memory: int | None = None
    grace: float = 30.0
    hidden: list[str] = field(default_factory=list)  # folders of this machine that the pod sees empty

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> PodSpec:
        values: dict[str, Any] = json.loads(text)
        values["main"] = _container(values["main"])
        values["init"] = [_container(c) for c in values["init"]]
        values["volumes"] = {name: Volume(**v) for name, v in values["volumes"].items()}
        values["outputs"] = [Output(**o) for o in values["outputs"]]
        return cls(**values)


def _container(values: dict[str, Any]) -> Container:
    return Container(**{**values, "mounts": [Mount(**m) for m in values["mounts"]]})


@dataclass(frozen=True)
class PodObservation:
    """What is known of a pod now.

    `phase`: Pending, Running, Succeeded, Failed, or Error (deleted or lost: exit code -1). Times are unix seconds.
    `message` is worded as Argo words it: `main: Error (exit code 3)`, `main: OOMKilled (exit code 137)`, `pod deleted`.
    """

    phase: str
    exit_code: int | None = None
    message: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    result: str | None = None  # what the main container wrote to its standard output, where a Workflow asks for it
    ip: str = ""  # the pod's address
    progress: str = ""  # the last valid line of $ARGO_PROGRESS_FILE: "N/M"
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed", "Error")
