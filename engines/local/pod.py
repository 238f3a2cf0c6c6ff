"""What runner, operator and supervisor say to each other about a pod. Plain data, JSON on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

MAIN = "main"  # the container whose outputs are the pod's


@dataclass(frozen=True)
class Mount:
    """`sub_path` of `volume` shows up at `path` in the container."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Volume:
    """`kind`: `folder` (bound), `overlay` (bound, writes go to the pod's own scratch), `empty` (the pod's own).

    An empty one begins with `files` in it: contents by name, executable if `mode` says so.
    """

    kind: str
    path: str = ""
    files: dict[str, str] = field(default_factory=dict)
    mode: int = 0o755


HTTP, TCP, EXEC = "http", "tcp", "exec"


@dataclass(frozen=True)
class Probe:
    """How to find out whether a container is ready: `kind` HTTP (an answer of 200 to 399), TCP (a connection) or EXEC
    (exit code 0). Times in seconds; `successes` in a row count."""

    kind: str
    host: str = ""  # default: the pod's address
    port: int = 0
    path: str = "/"
    headers: dict[str, str] = field(default_factory=dict)
    tls: bool = False
    command: list[str] = field(default_factory=list)
    delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    successes: int = 1


@dataclass(frozen=True)
class Container:
    """`after` names the containers beside it that must have ended well before its command runs.

    The command is run up to `tries` times as long as it fails, `pause` seconds apart. Memory in bytes (None: no limit).
    """

    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)  # the whole environment
    cwd: str = "/"
    mounts: list[Mount] = field(default_factory=list)
    memory: int | None = None
    after: list[str] = field(default_factory=list)
    tries: int = 1
    pause: float = 0.0
    probe: Probe | None = None


@dataclass(frozen=True)
class Output:
    """An output parameter: the contents of the file `path` when the main container ends, else `default`."""

    name: str
    path: str
    default: str | None = None


@dataclass(frozen=True)
class Artifact:
    """A file or folder, at `path` in the main container, that lies at `stored` on this machine before or after.

    `archive`: `tar` (with gzip, at `level`), `zip`, `none`, or `auto` for an input that is a tar archive if it looks
    like one. An input with `data` is that text. `mode` is an input's, of all that is in it if `recurse`.
    """

    name: str
    path: str
    stored: str = ""
    archive: str = "tar"
    level: int = -1  # gzip's own default
    optional: bool = False
    data: str | None = None
    mode: int | None = None
    recurse: bool = False


@dataclass(frozen=True)
class PodSpec:
    """Everything the supervisor needs to run a pod. `grace` in seconds.

    `init` run one after the other, then `containers` side by side; `sidecars` run with them and are ended after them.
    `result`: what MAIN writes to its standard output is wanted. `active_deadline`: seconds after its start at which the
    pod is ended and has failed. `deadline`: unix time at which its main containers are ended, as they may end.
    """

    name: str
    containers: list[Container]
    init: list[Container] = field(default_factory=list)
    sidecars: list[Container] = field(default_factory=list)
    volumes: dict[str, Volume] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    inputs: list[Artifact] = field(default_factory=list)
    result: bool = False
    hostname: str = ""
    address: str = "127.0.0.1"
    hosts: str = ""  # file shown as /etc/hosts
    grace: float = 30.0
    active_deadline: float | None = None
    deadline: float | None = None
    hidden: list[str] = field(default_factory=list)  # folders of this machine that the pod sees empty

    @property
    def main(self) -> Container:
        """The container called MAIN, of a set without one the last."""
        return next((each for each in self.containers if each.name == MAIN), self.containers[-1])

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PodSpec:
        values: dict[str, Any] = json.loads(text)
        for kind in ("containers", "init", "sidecars"):
            values[kind] = [_container(c) for c in values[kind]]
        values["volumes"] = {name: Volume(**v) for name, v in values["volumes"].items()}
        values["outputs"] = [Output(**o) for o in values["outputs"]]
        for kind in ("artifacts", "inputs"):
            values[kind] = [Artifact(**a) for a in values[kind]]
        return cls(**values)


def _container(values: dict[str, Any]) -> Container:
    probe = values["probe"] and Probe(**values["probe"])
    return Container(**{**values, "mounts": [Mount(**m) for m in values["mounts"]], "probe": probe})


@dataclass(frozen=True)
class ContainerEnd:
    """How one of a pod's main containers ended. `reason`: Completed, Error or OOMKilled; `detail`: more in words."""

    exit_code: int
    reason: str = "Error"
    detail: str = ""
    finished_at: float | None = None


@dataclass(frozen=True)
class PodObservation:
    """What is known of a pod now.

    `phase`: Pending, Running, Succeeded, Failed, or Error (exit code -1: deleted or lost; else main has ended and its
    outputs can't be had). Times are unix seconds. `message` is worded as Argo words it: `main: Error (exit code 3)`,
    `main: OOMKilled (exit code 137)`, `pod deleted`.
    """

    phase: str
    exit_code: int | None = None
    message: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    artifacts: list[str] = field(default_factory=list)  # names of the output artifacts that are in the store
    result: str | None = None  # what the main container wrote to its standard output, where a Workflow asks for it
    containers: dict[str, ContainerEnd] = field(default_factory=dict)  # the main containers that have ended
    ready: bool = True  # of a pod that is Running: whether all of its containers do
    ip: str = ""  # the pod's address
    progress: str = ""  # the last valid line of $ARGO_PROGRESS_FILE: "N/M"
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed", "Error")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PodObservation:
        """Reads what `dataclasses.asdict` made of one."""
        ends = {name: ContainerEnd(**end) for name, end in values.get("containers", {}).items()}
        return cls(**{**values, "containers": ends})
