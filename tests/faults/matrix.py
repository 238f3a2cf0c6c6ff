"""Running scenarios one after the other, each on a job of its own, and keeping what they came to."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ffdl.engines.argo.controller_check import CAPTURE
from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.kubernetes_api import Object
from tests.behaviours.tenant import tenant
from tests.cluster.cluster import Cluster
from tests.cluster.place import BUILDS, CHECKOUT
from tests.faults.records import FAILED, HELD, SLOW, UNDISTURBED, Record, Records, Setting, latest, of
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.trial import Moment, Trial, road

PAGE = CHECKOUT / "docs" / "faults.md"


@dataclass
class Matrix:
    """Runs in one namespace of `cluster`, as one user of it."""

    cluster: Cluster
    user: ClusterUser
    records: Records
    setting: Setting

    def due(self, scenarios: Sequence[Scenario], runs: int, any_commit: bool = False) -> list[Scenario]:
        """Each as often as it is still to be run, all once before any twice. `any_commit`: what held once has been."""
        known = self.records.all()
        done = {scenario.name: len(of(known, scenario.name, self.setting)) for scenario in scenarios}
        if any_commit:
            last = {scenario.name: latest(known, scenario.name) for scenario in scenarios}
            done |= {name: max(done[name], sum(run.verdict == HELD for run in last[name])) for name in done}
        return [scenario for turn in range(runs) for scenario in scenarios if done[scenario.name] <= turn]

    def reference(self) -> str:
        """The model of an undisturbed run, which is made once for each setting. Raises RuntimeError."""
        for record in of(self.records.all(), UNDISTURBED, self.setting):
            if record.verdict == HELD:
                return record.model
        record = self.run(None, None)
        if record.verdict != HELD:
            raise RuntimeError(
                f"a job that nobody disturbs does not come to its end: {record.said}; see {self.records.story(record)}"
            )
        return record.model

    def run(self, scenario: Scenario | None, reference: str | None) -> Record:
        """One run, recorded. What goes wrong is in the record; the cluster is whole again afterwards."""
        name = scenario.name if scenario is not None else UNDISTURBED
        at, load = time.time(), os.getloadavg()[0]
        verdict, recovery, said, story = HELD, None, "", ""
        moment = scenario.moment if scenario is not None else Moment.LEARNING
        with road(self.cluster) as throttle:
            trial = Trial(self.cluster, self.user, throttle, moment, reference)
            try:
                trial.begin()
                if scenario is not None:
                    recovery = hurt(trial, scenario)
                    if recovery > scenario.bound:
                        verdict, story = SLOW, self._story(trial)
                trial.finish()
            except Exception as error:  # noqa: BLE001 (whatever it was, the next scenario is run)
                verdict, said, story = FAILED, one_line(error), f"{error}\n{self._story(trial)}"
            finally:
                self.mend()
            left = self._remove(trial)
            if left and verdict != FAILED:
                verdict, said, story = FAILED, f"left after delete: {', '.join(left)}"[:300], story or "\n".join(left)
        record = Record(
            name, self.setting, at, verdict, recovery, said, trial.notes, load, trial.model if scenario is None else ""
        )
        self.records.add(record, story)
        return record

    def mend(self) -> None:
        """Starts what a fault has left dead; what lives is left alone."""
        for name in self.cluster.components:
            if self.cluster.process(name).pid is None:
                self.cluster.start(name)

    def _story(self, trial: Trial) -> str:
        """Told at once: what it tells of goes away."""
        self.mend()
        with contextlib.suppress(Exception):
            return f"{trial.job} at {time.strftime('%H:%M:%S', time.gmtime())} UTC\n{self.user.story()}"
        return "no story could be had"

    def _remove(self, trial: Trial) -> list[str]:
        if not trial.job:
            return []
        try:
            return trial.remove()
        except Exception as error:  # noqa: BLE001
            return [one_line(error)]


def hurt(trial: Trial, scenario: Scenario) -> float:
    """Does it; returns the seconds until the job has recovered. Raises AssertionError if it does not."""
    since = scenario.fault(trial)
    return max(0.0, scenario.recovered(trial, since) - since)


def one_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


@contextlib.contextmanager
def matrix(cluster: Cluster, records: Records, folder: Path) -> Iterator[Matrix]:
    """One in a namespace made for it."""
    with tenant("ffdl-faults") as home:
        yield Matrix(cluster, ClusterUser(folder, home), records, setting(cluster))


def setting(cluster: Cluster) -> Setting:
    """What is tested now."""
    version = re.search(r"k8s\.io/kubernetes v(\S+)", (BUILDS / "onenode" / "go.mod").read_text())
    assert version is not None
    controller = cluster.kubectl("get", "deployment", "workflow-controller", "-n", "argo", "-o", "json")
    return described(json.loads(controller), commit(), version[1])


def described(controller: Object, commit: str, kubernetes: str) -> Setting:
    """What a controller's Deployment says of the setting; `kubernetes` is its version."""
    container = controller["spec"]["template"]["spec"]["containers"][0]
    finalizer = {"name": CAPTURE, "value": "true"} in (container.get("env") or ())
    return Setting(commit, container["image"].rpartition(":")[2], kubernetes, finalizer)


def commit() -> str:
    """The checkout's; with a `+` if files differ from it, this page itself not counted."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout

    changed = [
        line for line in git("status", "--porcelain").splitlines() if line[3:] != str(PAGE.relative_to(CHECKOUT))
    ]
    return git("rev-parse", "--short=10", "HEAD").strip() + "+" * bool(changed)


def chosen(patterns: Sequence[str], gentle: bool) -> list[Scenario]:
    """Those whose names hold one of the patterns; `gentle` leaves out what other jobs of the cluster would feel."""
    scenarios = [scenario for scenario in SCENARIOS if not (gentle and scenario.disturbs)]
    return [scenario for scenario in scenarios if not patterns or any(part in scenario.name for part in patterns)]
