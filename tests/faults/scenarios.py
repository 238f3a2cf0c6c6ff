"""The table: into which moment of a job which fault falls, how its recovery is seen, and how long it may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults import faults, recovery
from tests.faults.faults import DOWNLOAD, HELPER, LEARNER, STORE, Fault
from tests.faults.recovery import Recovery
from tests.faults.trial import Moment

GRACEFULLY, BY_FORCE, RETURNED = 45.0, 30.0, 15.0  # seconds: pods deleted, and after a component is back


@dataclass(frozen=True)
class Scenario:
    """`bound` is in seconds, from `counted` on. `disturbs`: all jobs of the cluster feel the fault."""

    moment: Moment
    what: str
    fault: Fault
    recovered: Recovery
    bound: float
    counted: str = "the fault"
    disturbs: bool = False

    @property
    def name(self) -> str:
        return f"{self.moment.value}: {self.what}"

    @property
    def seen(self) -> str:
        return RECOVERED[self.recovered]


RECOVERED: dict[Recovery, str] = {
    recovery.learner_steps: "a new process of the learner steps",
    recovery.helper_reports: "the next helper reports a job in training",
    recovery.all_start: "a new learner steps, a new helper reports",
    recovery.everything_flows: "the learner steps, the helper's report and the pod's log arrive",
    recovery.all_is_stored: "the job is over, all is stored",
    recovery.is_halted: "HALTED, no pod left",
}
COMPONENTS = {
    "argo-controller": "Argo's controller",
    "kubelet": "the kubelet",
    "containerd": "containerd",
    "etcd": "etcd",
    "apiserver": "the API server",
}


def _deleted(
    moment: Moment, what: str, recovered: Recovery, *pods: tuple[str, ...], delete: Callable[..., Fault] = faults.delete
) -> list[Scenario]:
    return [
        Scenario(moment, f"{what} deleted", delete(*pods), recovered, GRACEFULLY),
        Scenario(moment, f"{what} deleted by force", delete(*pods, force=True), recovered, BY_FORCE),
    ]


def _crash(moment: Moment, component: str, what: str) -> Scenario:
    recovered = recovery.everything_flows if moment is Moment.LEARNING else recovery.all_is_stored
    fault = faults.crash(component)
    return Scenario(moment, f"{what} killed and started again", fault, recovered, RETURNED, "its return", True)


SCENARIOS: tuple[Scenario, ...] = (
    *_deleted(Moment.LEARNING, "learner's pod", recovery.learner_steps, LEARNER),
    *_deleted(Moment.LEARNING, "helper's pod", recovery.helper_reports, HELPER),
    *_deleted(Moment.LEARNING, "pods of learner and helper at once", recovery.all_start, LEARNER, HELPER),
    Scenario(Moment.LEARNING, "learner's pod evicted", faults.evict, recovery.learner_steps, GRACEFULLY),
    Scenario(
        Moment.LEARNING, "node cordoned, drained, uncordoned", faults.drain, recovery.all_start, RETURNED,
        "the uncordoning", True,
    ),
    Scenario(Moment.LEARNING, "script killed", faults.kill("script"), recovery.learner_steps, BY_FORCE),
    Scenario(Moment.LEARNING, "agent killed", faults.kill("agent"), recovery.learner_steps, BY_FORCE),
    Scenario(
        Moment.LEARNING, "first process of the learner's container killed", faults.kill("agent", first=True),
        recovery.learner_steps, BY_FORCE,
    ),
    Scenario(Moment.LEARNING, "helper killed", faults.kill("helper"), recovery.helper_reports, BY_FORCE),
    Scenario(
        Moment.LEARNING, "first process of the helper's container killed", faults.kill("helper", first=True),
        recovery.helper_reports, BY_FORCE,
    ),
    *(_crash(Moment.LEARNING, name, what) for name, what in COMPONENTS.items()),
    Scenario(
        Moment.LEARNING, "halted; resumed while Argo's controller is down", faults.resume_without_controller,
        recovery.learner_steps, RETURNED, "its return", True,
    ),
    Scenario(
        Moment.LEARNING, "halt asked for while the API server is down, and again", faults.halt_without_apiserver,
        recovery.is_halted, RETURNED, "its return", True,
    ),
    *_deleted(Moment.DOWNLOADING, "download's pod", recovery.learner_steps, DOWNLOAD),
    *_deleted(Moment.STORING, "pod of store-results", recovery.all_is_stored, STORE),
    *(_crash(Moment.STORING, name, what) for name, what in COMPONENTS.items()),
    _crash(Moment.STORING, "s3", "the store"),
    *_deleted(Moment.FAILING, "the exit handler's pod", recovery.all_is_stored, STORE),
)  # fmt: skip
