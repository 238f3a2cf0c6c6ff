"""The table of recoveries as a page of the manual. Pure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence

from tests.faults.records import FAILED, HELD, SLOW, Record, Setting, latest, of
from tests.faults.scenarios import Scenario
from tests.faults.trial import Moment

FINALIZER = "its finalizer on pods (`ARGO_POD_STATUS_CAPTURE_FINALIZER`)"
HEAD = """\
# Faults

What was done on purpose to real jobs on a real cluster (one node, made by `tests/cluster`), and how long it took until
they were at work again. `python -m tests.faults` does it all once more and writes this page.

A run counts as *held* if the job recovered within the bound, came to the end that it would have had anyway, with a
model that is bit for bit that of an undisturbed run, every step in its logs, all results and data whole, and if nothing
of it was left after `ffdl delete`. *Counted from* is the moment of the fault or, for components of the cluster that
were killed with `kill -9` and kept down for about ten seconds, the moment they are healthy again. Argo's controller is
so when it holds its lease again, for which it waits up to 15 s. Times are in seconds.

"""


def page(scenarios: Sequence[Scenario], records: Sequence[Record], setting: Setting, now: float, cores: int) -> str:
    """`now` in unix seconds, `cores` the machine's.

    A scenario that was not run in this setting is shown with its last run, and says so.
    """
    runs = {}
    for scenario in scenarios:
        runs[scenario.name] = of(records, scenario.name, setting) or latest(records, scenario.name)
    here = [scenario for scenario in scenarios if of(records, scenario.name, setting)]
    held = sum(_verdict(runs[scenario.name]) == HELD for scenario in scenarios)
    when = time.strftime("%Y-%m-%d", time.gmtime(now))
    text = HEAD
    text += f"{when}, commit {setting.commit}, Argo Workflows {setting.argo}{_with(setting, FINALIZER)}, "
    text += f"Kubernetes {setting.kubernetes}: {held} of {len(scenarios)} held."
    if len(here) < len(scenarios):
        text += f" {len(scenarios) - len(here)} were not run in this setting; their rows name another one or none."
    if loads := [run.load for scenario in scenarios for run in runs[scenario.name]]:
        text += f" The machine had {cores} cores and a load of {min(loads):.0f} to {max(loads):.0f} when runs began."
    for moment in Moment:
        rows = [scenario for scenario in scenarios if scenario.moment is moment]
        text += f"\n\n## While {moment.value}\n\n"
        text += "| fault | recovered when | counted from | bound | runs | median | worst | verdict |\n"
        text += "|---|---|---|---|---|---|---|---|\n"
        text += "\n".join(_row(scenario, runs[scenario.name], setting) for scenario in rows)
    return text + "\n"


def _row(scenario: Scenario, runs: Sequence[Record], setting: Setting) -> str:
    times = [run.recovery for run in runs if run.recovery is not None]
    median, worst = (f"{statistics.median(times):.1f}", f"{max(times):.1f}") if times else ("", "")
    verdict = _verdict(runs)
    if verdict not in (HELD, "not run"):
        verdict = f"**{verdict}**"
    said = next((run.said for run in reversed(runs) if run.said), "")
    if said:
        verdict += f": {said}"
    if runs and runs[-1].setting != setting:
        last = runs[-1].setting
        verdict += f" (at {last.commit}, Argo {last.argo}{_with(last, 'the finalizer')})"
    cells = (scenario.what, scenario.seen, scenario.counted, f"{scenario.bound:.0f}", str(len(runs)), median, worst)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, verdict)) + " |"


def _with(setting: Setting, finalizer: str) -> str:
    """Whether Argo's controller had it; nothing where that is not known."""
    return {True: f" with {finalizer}", False: f" without {finalizer}", None: ""}[setting.finalizer]


def _verdict(runs: Iterable[Record]) -> str:
    """The worst of them."""
    seen = {run.verdict for run in runs}
    return next((verdict for verdict in (FAILED, SLOW, HELD) if verdict in seen), "not run")
