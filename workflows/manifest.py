"""What the user wrote: the manifest, its keys, and `load`, which reads one strictly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ..learner import contract
from . import quantities, yaml_lines
from .catalogue import Catalogue, shipped
from .data_stores import DATA_STORES, DataStore, TrainingData, TrainingResults
from .errors import ManifestError, Problem, shown
from .frameworks import Framework, ImageLocation
from .keys import (
    DURATION,
    LINE,
    SIZE,
    TEXT,
    Key,
    ListOf,
    MapOf,
    Part,
    PartOf,
    Value,
    Written,
    choice,
    whole,
)
from .metrics import EvaluationMetrics
from .overrides import apply
from .policies import CPUS, LABEL_VALUE, NOT_YET, OBJECT, Checkpoint, Distribution, Placement, Retry, Toleration
from .references import references, referring
from .yaml_lines import Mapping, Place, Report, Scalar

__all__ = [
    "Checkpoint",
    "DataStore",
    "Distribution",
    "EvaluationMetrics",
    "Framework",
    "ImageLocation",
    "Manifest",
    "ManifestError",
    "Placement",
    "Problem",
    "Retry",
    "Toleration",
    "TrainingData",
    "TrainingResults",
    "load",
    "references",
]

MOST_LEARNERS = 10_000
_FFDL_NAMES = re.compile(
    "(DATA|RESULT|RESULT_BUCKET|CHECKPOINT|MODEL|LOG|JOB_STATE)_DIR|TRAINING_(ID|COMMAND|JOB)|GPU_COUNT|NUM_LEARNERS|"
    "LEARNER_(ID|NAME_PREFIX)|DOWNWARD_API_POD_NAME(SPACE)?|FFDL_.*"
)


def _gpus(node: Scalar) -> float:
    gpus = quantities.number(node.text, 1e4, such_as="1 or 4")
    if gpus != int(gpus):
        raise ValueError(f"is {shown(node.text)}, and a GPU is not shared; write {int(gpus)} or {int(gpus) + 1}")
    return gpus


def _time_limit(node: Scalar) -> float:
    seconds = quantities.duration(node.text)
    if not seconds:
        raise ValueError(f"is {shown(node.text)}, no time at all; write a duration such as 1h, or remove the key")
    return seconds


def _variable(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("is no name of a variable; write letters, digits and _")
    if _FFDL_NAMES.fullmatch(name):
        raise ValueError("is set by ffdl itself; choose another name")


LIMIT = Value("a duration, such as 90s or 2h", _time_limit, quantities.spell_duration)


class Manifest(Part):
    """A manifest whose every value has been checked. Sizes in bytes, times in seconds."""

    title: ClassVar[str] = "at the top of a manifest"
    refused: ClassVar[dict[str, str]] = {"elastic": f"{NOT_YET} and write the number of learners as learners"}

    name: Annotated[
        str, Key(LINE, "Name of the job.", missing="Model definition name is not set; write name: my-model")
    ]
    description: Annotated[str, Key(TEXT, "What it is about.")] = ""
    version: Annotated[str, Key(LINE, "The job's own version; for you to read.")] = ""
    framework: Annotated[
        Framework,
        Key(
            PartOf(Framework),
            "What runs.",
            missing="Framework is not set; write framework: with name, version and command",
        ),
    ]
    cpus: Annotated[
        float | None,
        Key(CPUS, "CPUs of a learner. Without it, or 0: 5, or what the machine has."),
    ] = None
    gpus: Annotated[float, Key(Value("a whole number from 0", _gpus, "{:g}".format), "GPUs of a learner.")] = 0.0
    gpu_type: Annotated[str, Key(LABEL_VALUE, "Kind of GPU; for you to read.")] = ""
    learners: Annotated[int, Key(whole(1, MOST_LEARNERS), "How many run the command.")] = 1
    memory: Annotated[int | None, Key(SIZE, "Memory of a learner. Without it: 512MB, or what the machine has.")] = None
    storage: Annotated[int | None, Key(SIZE, "Size of the job's volume. Without it: 10GiB.")] = None
    data_stores: Annotated[
        tuple[DataStore, ...],
        Key(DATA_STORES, "Where data comes from and results go to: one store. Without it, no data."),
    ] = ()
    evaluation_metrics: Annotated[
        EvaluationMetrics | None, Key(PartOf(EvaluationMetrics), "How metrics are found in what learners write.")
    ] = None
    distribution: Annotated[Distribution, Key(PartOf(Distribution), "How learners work together.")] = Field(
        default_factory=Distribution
    )
    completion: Annotated[
        str | None,
        Key(
            choice("all", "first", "master"),
            "Whose end ends the job: `all` learners', the `first`'s, or the `master`'s (learner 1). Without it: "
            "`first` with several learners and no `distribution`, as FfDL did, `master` with `mpi`, else `all`.",
        ),
    ] = None
    retry: Annotated[Retry, Key(PartOf(Retry), "Restarts after failures of your own command.")] = Field(
        default_factory=Retry
    )
    checkpoint: Annotated[Checkpoint, Key(PartOf(Checkpoint), "How often, and how many stay.")] = Field(
        default_factory=Checkpoint
    )
    start_timeout: Annotated[
        float, Key(LIMIT, "How long it may fail to start for a reason that waiting can't cure.")
    ] = 3600.0
    max_runtime: Annotated[float | None, Key(LIMIT, "How long it may run; halted and queued time does not count.")] = (
        None
    )
    halt_grace: Annotated[float, Key(DURATION, "How long a command may take to end after SIGTERM.")] = 120.0
    env: Annotated[
        dict[str, str],
        Key(
            MapOf(Value("text or `${NAME}`", referring), "{LEVEL: info, TOKEN: '${TOKEN}'}", _variable),
            "Environment of the command. `${NAME}` is taken from your environment at submission and kept in a Secret.",
        ),
    ] = Field(default_factory=dict)
    env_from_secret: Annotated[
        tuple[str, ...], Key(ListOf(OBJECT, "[my-secret]"), "Secrets whose keys become environment variables.")
    ] = ()
    placement: Annotated[Placement, Key(PartOf(Placement), "Where learners may run.")] = Field(
        default_factory=Placement
    )

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        distribution, completion = written.get("distribution"), written.get("completion")
        if distribution is None or completion is None or not isinstance(distribution.value, Distribution):
            return
        if distribution.value.kind == contract.MPI and completion.value in ("all", "first"):
            report.say(
                completion.place, f"completion is {completion.value}, but only learner 1 runs the command; remove it"
            )

    @property
    def command_is_script(self) -> bool:
        """The command is a literal block: several lines, run as they stand."""
        return self.framework.script

    def metrics_json(self) -> dict[str, Any]:
        """`evaluation_metrics` with a manifest's keys, defaults filled in; {} if there is none."""
        if self.evaluation_metrics is None:
            return {}
        return self.evaluation_metrics.model_dump(mode="json", by_alias=True, exclude_none=True)


def load(
    text: bytes, file: str = "manifest.yml", overrides: Sequence[str] = (), catalogue: Catalogue | None = None
) -> Manifest:
    """The manifest that `text` holds, with `overrides` ("framework.command=…") put into it; messages call it `file`.

    Frameworks are those of `catalogue`, by default ffdl's own. Raises ManifestError with everything that is wrong.
    """
    catalogue = catalogue or shipped()
    report = Report(catalogue)
    root = yaml_lines.parse(text, file, report)
    if root is None or isinstance(root, Mapping):
        root = apply(root, overrides, report)
    top = Place(0, 1, file)
    if root is None:
        report.fail(top, "is empty; write at least name: and framework:, or begin with 'ffdl init NAME'")
    if not isinstance(root, Mapping):
        shape = "a list" if isinstance(root, yaml_lines.Sequence) else "text"
        report.fail(root.place, f"holds {shape}, not keys and values; begin with name: my-model")
    manifest = Manifest.read(root, top, "", report)
    if len(report) or not isinstance(manifest, Manifest):
        raise ManifestError(report.problems())
    framework = manifest.framework.model_copy(update={"entry": catalogue.entries.get(manifest.framework.name)})
    return manifest.model_copy(update={"framework": framework})
