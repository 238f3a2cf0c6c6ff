"""How a job runs and where: `distribution`, `retry`, `checkpoint`, `placement` of a manifest."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ..learner import contract
from . import quantities
from .errors import shown
from .keys import SIZE, WRONG, Key, ListOf, MapOf, Part, PartOf, Value, Written, choice, matching, whole
from .yaml_lines import Place, Report, Scalar

NOT_YET = "is not in this version; remove it"
MOST_SERVERS = 1000
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL_VALUE.pattern}")
_OBJECT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def _interval(node: Scalar) -> float | int:
    """Seconds, or a number of steps as an int."""
    if steps := re.fullmatch(r"([0-9]+) *steps?", node.text):
        return quantities.whole(steps[1], 1, 10**12)
    seconds = quantities.duration(node.text)
    if not seconds:
        raise ValueError(f"is {shown(node.text)}; write a duration such as 60s, or 100 steps")
    return seconds


def _cpus(node: Scalar) -> float | None:
    """FfDL took 0 for its default."""
    cpus = quantities.number(node.text)
    if 0 < cpus < 0.001:
        raise ValueError(f"is {shown(node.text)}, less than a thousandth; write 0.001 or more")
    return cpus or None


def _label(name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise ValueError("is no label of a node; write one such as kubernetes.io/arch")


OBJECT = matching(_OBJECT, "a Kubernetes name", "my-secret")
LABEL_VALUE = matching(_LABEL_VALUE, "a label's value", "nvidia-TeslaV100")
CPUS = Value("a number, such as 0.5", _cpus)
INTERVAL = Value("a duration, or a number of steps such as `100 steps`", _interval, quantities.spell_duration)


class Distribution(Part):
    title: ClassVar[str] = "in distribution"

    kind: Annotated[
        str,
        Key(
            choice("none", contract.PEER, contract.PARAMETER_SERVER, contract.MPI),
            "`none`: learners on their own, FfDL's way. `peer`: they train one model together. `parameter-server`: "
            "they do so by way of servers that keep its parameters. `mpi`: learner 1 alone runs the command, and the "
            "`mpirun` in it starts processes in all of them.",
        ),
    ] = "none"
    servers: Annotated[int | None, Key(whole(1, MOST_SERVERS), "How many parameter servers. Without it: 1.")] = None
    cpus: Annotated[float | None, Key(CPUS, "CPUs of a parameter server. Without it: 1.")] = None
    memory: Annotated[int | None, Key(SIZE, "Memory of a parameter server. Without it: as a learner's.")] = None
    mode: Annotated[
        str | None,
        Key(
            choice(*contract.MODES, *contract.OWN_SERVERS),
            "What servers do with what learners send: `sync`: the optimizer's step with the mean of all gradients "
            "(without it, this). `async`: with each as it comes. `easgd`: they and the learners draw near each other. "
            "`average`: the mean of all learners' parameters. `tensorflow`, `mxnet`: servers are the framework's own, "
            "and run the command.",
        ),
    ] = None
    processes: Annotated[
        str | None,
        Key(
            choice("one", contract.PER_GPU),
            "Processes of the command in each learner: `one`, or one `per-gpu`, with `LOCAL_RANK`, `RANK` and so on. "
            "With kind `mpi` an `mpirun` of ours starts them; without this key, the command's own does.",
        ),
    ] = None

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        kind = written["kind"].value if "kind" in written else "none"
        for name in ("servers", "cpus", "memory", "mode"):
            if name in written and kind not in (contract.PARAMETER_SERVER, WRONG):
                report.say(
                    written[name].place,
                    f"{path}.{name} is of parameter servers; write kind: {contract.PARAMETER_SERVER} as well",
                )
        processes = written.get("processes")
        if kind == contract.PARAMETER_SERVER and processes is not None and processes.value == contract.PER_GPU:
            report.say(
                processes.place,
                f"{path}.processes is {contract.PER_GPU}, which parameter servers do not go with; remove it",
            )


class Retry(Part):
    title: ClassVar[str] = "in retry"

    attempts: Annotated[int, Key(whole(0), "How many times the command is started again.")] = 0
    on: Annotated[
        tuple[str, ...],
        Key(ListOf(choice("crash", "out-of-memory"), "[crash]"), "After which failures."),
    ] = ("crash", "out-of-memory")


class Checkpoint(Part):
    title: ClassVar[str] = "in checkpoint"

    interval: Annotated[float | None, Key(INTERVAL, "Time from one checkpoint to the next.")] = 60.0
    steps: int | None = None
    """Steps from one checkpoint to the next, if `interval` counts steps; `interval` is None then."""
    keep: Annotated[int, Key(whole(1), "How many of the last checkpoints stay.")] = 3

    @classmethod
    def values(cls, read: dict[str, Any]) -> dict[str, Any]:
        interval = read.get("interval")
        return {**read, "interval": None, "steps": interval} if isinstance(interval, int) else read


class Toleration(Part):
    title: ClassVar[str] = "in placement.tolerations"

    key: Annotated[str | None, Key(matching(_LABEL, "a taint's key", "dedicated"), "Key of the taint.")] = None
    operator: Annotated[str | None, Key(choice("Exists", "Equal"), "How `value` is compared.")] = None
    value: Annotated[str | None, Key(LABEL_VALUE, "Value of the taint.")] = None
    effect: Annotated[
        str | None, Key(choice("NoSchedule", "PreferNoSchedule", "NoExecute"), "Effect of the taint; without it, all.")
    ] = None
    seconds: Annotated[int | None, Key(whole(0, 10**9), "How long a `NoExecute` taint is borne.")] = Field(
        default=None, alias="tolerationSeconds"
    )


class Placement(Part):
    title: ClassVar[str] = "in placement"

    node_selector: Annotated[
        dict[str, str],
        Key(MapOf(LABEL_VALUE, "{kubernetes.io/arch: amd64}", _label), "Labels a learner's node must have."),
    ] = Field(default_factory=dict)
    tolerations: Annotated[
        tuple[dict[str, Any], ...],
        Key(
            ListOf(PartOf(Toleration, as_map=True), "[{key: dedicated, operator: Exists}]"), "Taints learners tolerate."
        ),
    ] = ()
    priority_class: Annotated[str | None, Key(OBJECT, "PriorityClass of the learners.")] = None
    shm: Annotated[int | None, Key(SIZE, "Size of `/dev/shm`; without it, half the memory.")] = None
