"""What is done to a job and to what it runs on. Each returns the unix time from which its recovery counts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from tests.cluster.place import NODE
from tests.faults.trial import Trial

Fault = Callable[[Trial], float]

CONTROLLER = "argo-controller"
DOWN = 10.0  # seconds that a component stays down
LEARNER, HELPER, DOWNLOAD = ("learner",), ("checkpoint",), ("download",)
STORE = ("store-results", "store-after-failure")


# --- pods -------------------------------------------------------------------------------------------------------------


def delete(*pods: tuple[str, ...], force: bool = False) -> Fault:
    """Deletes a pod of each of these roles. One that moves bytes does so slowly, the one after it does not."""

    def act(trial: Trial) -> float:
        names = [trial.pod(*roles) for roles in pods]
        at = time.time()
        for name in names:
            trial.user.api.delete("pods", name, grace=0 if force else None)
        trial.wait(lambda: not trial.moving(), "the end of the process that moved bytes", 60)
        if trial.movers:
            trial.notes.append(f"its process ended after {time.time() - at:.1f} s")
        trial.hurry(road=True)
        return at

    return act


def evict(trial: Trial) -> float:
    """Through the eviction API, as a drain and the descheduler do."""
    name = trial.pod(*LEARNER)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    at = time.time()
    trial.user.api.call("POST", trial.user.api.path("pods", name) + "/eviction", body)
    return at


def drain(trial: Trial) -> float:
    """Cordon, drain, wait until Argo has made the next pods, which find no node; counts from the uncordon."""
    old = {pod["metadata"]["name"] for pod in trial.user.alive(trial.job)}
    trial.cluster.kubectl("cordon", NODE)
    try:
        selector = f"--pod-selector=ffdl.org/job={trial.job}"
        trial.cluster.kubectl(
            "drain", NODE, selector, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s"
        )
        trial.wait(lambda: _waiting(trial, old) == len(old), "the next pods, pending", 60)
    finally:
        trial.cluster.kubectl("uncordon", NODE)
    return time.time()


def _waiting(trial: Trial, old: set[str]) -> int:
    pods = trial.user.alive(trial.job)
    return sum(pod["metadata"]["name"] not in old and pod["status"]["phase"] == "Pending" for pod in pods)


# --- processes --------------------------------------------------------------------------------------------------------


def kill(program: str, first: bool = False) -> Fault:
    """`kill -9` of a program of the job, or of the first process of the container that it runs in."""

    def act(trial: Trial) -> float:
        at = time.time()
        trial.watcher.kill(program, first)
        return at

    return act


# --- the cluster ------------------------------------------------------------------------------------------------------


def crash(component: str) -> Fault:
    """`kill -9`, some seconds without it, and its start again; recovery counts from when it is healthy.

    Storing gets the time to come to its end meanwhile, so that what is measured is what is left to do afterwards.
    """

    def act(trial: Trial) -> float:
        with down(trial, component):
            if trial.moving() and component != "s3":
                time.sleep(DOWN / 2)
                trial.hurry(road=True)
                with contextlib.suppress(AssertionError):
                    trial.wait(lambda: not trial.moving(), "the end of storing", DOWN / 2)
                trial.notes.append("storing goes on" if trial.moving() else "the process of storing ended meanwhile")
            else:
                time.sleep(DOWN)
        trial.hurry(road=True)
        return time.time()

    return act


def resume_without_controller(trial: Trial) -> float:
    """A halted job is resumed while no controller hears of it."""
    trial.user.ffdl("halt", trial.job)
    with down(trial, CONTROLLER):
        trial.user.ffdl("resume", trial.job)
        time.sleep(DOWN / 2)
    return time.time()


def halt_without_apiserver(trial: Trial) -> float:
    """The command says in one line that nobody answers, training goes on; asked again afterwards, it halts."""
    with down(trial, "apiserver"):
        said = trial.user.ffdl("halt", trial.job, code=4).stderr
        lines = said.strip().splitlines()
        if len(lines) != 1:
            raise AssertionError(f"not one line: {said}")
        trial.notes.append(lines[0])
        asked = time.time()
        time.sleep(DOWN / 2)
        if trial.watcher.stepped(asked) is None:
            raise AssertionError("training did not go on without the API server")
    at = time.time()
    trial.user.ffdl("halt", trial.job)
    return at


@contextlib.contextmanager
def down(trial: Trial, component: str) -> Iterator[None]:
    """A component is killed, and started again whatever happens. Argo's controller is back when it leads again."""
    trial.cluster.kill(component)
    try:
        yield
    finally:
        trial.cluster.start(component)
    if component == CONTROLLER:
        began = time.time()
        trial.wait(lambda: _leads(trial), "a controller that leads", 60)
        trial.notes.append(f"waited {time.time() - began:.1f} s for Argo's lease")


def _leads(trial: Trial) -> bool:
    """A controller in a new pod waits until the lease of the one that was killed has run out."""
    ask = ("-n", "argo", "-o")
    holder = trial.cluster.kubectl("get", "lease", "workflow-controller", *ask, "jsonpath={.spec.holderIdentity}")
    pods = trial.cluster.kubectl("get", "pods", "-l", "app=workflow-controller", *ask, "jsonpath={..metadata.name}")
    return holder in pods.split()
