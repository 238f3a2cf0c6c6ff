"""When a job counts as recovered. Each waits for it and returns the unix time of it, or raises AssertionError."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.behaviours.kubernetes_api import ApiError
from tests.faults.trial import Trial

Recovery = Callable[[Trial, float], float]

GIVEN_UP_AFTER = 150.0  # seconds; what takes longer than its bound is measured all the same


def learner_steps(trial: Trial, since: float) -> float:
    """The first step of a learner's process that was not there before the fault."""

    def first() -> float | None:
        new = [began for pid, began in trial.watcher.processes("script").items() if pid not in trial.scripts]
        return trial.watcher.stepped(min(new)) if new else None

    return _when(trial, first, "a step of a new process")


def helper_reports(trial: Trial, since: float) -> float:
    """The cluster has the report of a later helper, which knows all learners."""

    def reports() -> bool:
        report = trial.report()
        return bool(report.get("epoch", 0) > trial.epoch and _training(report))

    return _when(trial, lambda: time.time() if reports() else None, "a report of the next helper")


def all_start(trial: Trial, since: float) -> float:
    """Learner and helper are both there again."""
    steps, reports = learner_steps(trial, since), helper_reports(trial, since)
    trial.notes.append(f"a step after {steps - since:.1f} s, a report after {reports - since:.1f} s")
    return max(steps, reports)


def everything_flows(trial: Trial, since: float) -> float:
    """The learner steps, its helper's news reach the cluster, and its pod's log can be read through it."""
    signs: dict[str, Callable[[], object]] = {
        "a step": lambda: trial.watcher.stepped(since),
        "a report": lambda: trial.report().get("time", 0) > since and _training(trial.report()),
        "the learner's log": lambda: _log(trial),
    }
    seen: dict[str, float] = {}

    def all_seen() -> float | None:
        for name, sign in signs.items():
            if name not in seen and (at := sign()):
                seen[name] = at if isinstance(at, float) else time.time()
        return max(seen.values()) if len(seen) == len(signs) else None

    try:
        at = _when(trial, all_seen, "")
    except AssertionError:
        raise AssertionError(f"never came: {', '.join(sorted(signs.keys() - seen.keys()))}") from None
    trial.notes.append(", ".join(f"{name} after {max(0.0, when - since):.1f} s" for name, when in seen.items()))
    return at


def all_is_stored(trial: Trial, since: float) -> float:
    """The job is over; what became of it is looked at later."""
    later: list[float] = []

    def over() -> float | None:
        if not later and (found := trial.watcher.processes("store").items()):
            later.extend(began for pid, began in found if pid not in trial.movers)
        return time.time() if trial.over() else None

    at = _when(trial, over, "the end of storing")
    if later:
        trial.notes.append(f"the next process began after {later[0] - since:.1f} s")
    return at


def is_halted(trial: Trial, since: float) -> float:
    """The job is at rest; it is then resumed."""

    def at_rest() -> bool:
        status = trial.status()
        return status is not None and status.state == "HALTED" and not trial.user.alive(trial.job)

    at = _when(trial, lambda: time.time() if at_rest() else None, "HALTED")
    trial.user.ffdl("resume", trial.job)
    return at


def _when(trial: Trial, seen: Callable[[], float | None], what: str) -> float:
    found: list[float] = []

    def look() -> bool:
        at = seen()
        found.extend([at] if at is not None else [])
        return bool(found)

    trial.wait(look, what, GIVEN_UP_AFTER)
    return found[0]


def _training(report: dict[str, object]) -> bool:
    learners = report.get("learners")
    together = isinstance(learners, dict) and learners["joined"] == learners["wanted"]
    return together and report.get("message") == "training"


def _log(trial: Trial) -> bool:
    api = trial.user.api
    try:
        return bool(api.call("GET", api.path("pods", trial.pod("learner")) + "/log", container="main", tailLines="1"))
    except (ApiError, OSError, AssertionError):
        return False
