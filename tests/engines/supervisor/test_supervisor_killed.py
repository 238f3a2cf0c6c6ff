"""`kill -9` of every process of a pod in every phase of its life."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import pytest

from ffdl.engines.local import processes, supervisor

DAEMON = "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > $0; exec sleep 1000' $J/daemon >/dev/null 2>&1 &) ; "
# as an agent starts a learner: with an environment of its own, so without the pod's mark
UNMARKED = "env -i sleep 1000 & "
LIVE = (
    DAEMON
    + UNMARKED
    + "until [ -s $J/daemon ]; do sleep 0.01; done; trap '' TERM; echo up > $J/up; sleep 1000; sleep 1000"
)
DELETED = ("Error", -1, "pod deleted")

EXPECTED = {
    ("supervisor", "init"): DELETED,
    ("supervisor", "running"): DELETED,
    ("supervisor", "ending"): DELETED,
    ("first", "init"): ("Failed", -1, "prep: Error (exit code 137)"),
    ("first", "running"): ("Failed", 137, "main: Error (exit code 137)"),
    ("first", "ending"): DELETED,
    ("main", "init"): ("Failed", -1, "prep: Error (exit code 137)"),
    ("main", "running"): ("Failed", 137, "main: Error (exit code 137)"),
    ("main", "ending"): DELETED,
}


@pytest.mark.parametrize(("victim", "phase"), EXPECTED)
def test_killed(pods, victim: str, phase: str) -> None:
    """Out-of-memory killers and people hit any process: the pod ends as one, with the result that retries expect."""
    init = {"prep": LIVE} if phase == "init" else {}
    pod = pods.start(LIVE, init=init, memory=1 << 30)
    pods.wait_for("up")
    pids = pods.pids(pod)
    if phase == "ending":
        supervisor.terminate(pod)
    os.kill(pids[victim], signal.SIGKILL)
    seen = pods.end(pod)
    assert (seen.phase, seen.exit_code, seen.message) == EXPECTED[victim, phase]
    assert pods.marked() == []
    assert pods.cgroups() == []


def test_unmarked_processes_go_too(pods) -> None:
    """The learner runs in a clean environment: the supervisor's death must end it all the same."""
    pod = pods.start("env -i sleep 1234567 & echo $! > $J/child; sleep 1000")
    pods.wait_for("child")
    pids = pods.pids(pod)
    below = processes.descendants([pids["main"]])
    assert below
    stats = [found for found in map(processes.stat, below) if found]
    os.kill(pids["supervisor"], signal.SIGKILL)
    pods.end(pod)
    assert not any(processes.alive(p.pid, p.start) for p in stats)


def test_supervisors_death_ends_the_pod_though_nobody_looks(pods, isolation: str) -> None:
    """The machine's CPUs are free again before anyone asks: main goes at once, with namespaces all of the pod."""
    pod = pods.start(LIVE)
    pods.wait_for("up")
    pids = pods.pids(pod)
    os.kill(pids["supervisor"], signal.SIGKILL)
    pods.await_(lambda: (found := processes.stat(pids["main"])) is None or not found.alive, "the end of main")
    if isolation == "namespaces":
        pods.assert_nothing_left()
    assert pods.end(pod).message == "pod deleted"


def test_random_kills(pods) -> None:
    """Twenty pods, each hit at a moment of chance: each ends, none runs twice, nothing is left of any."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    script = "echo $1 >> $J/runs; sleep 0.03; " + DAEMON + "sleep 0.02; exit 0"

    def start(number: int):
        return pods.start(script.replace("$1", str(number)), init={"prep": "sleep 0.01"}, memory=1 << 30)

    begun = time.monotonic()
    assert pods.end(start(-1)).phase == "Succeeded"
    whole = time.monotonic() - begun  # what one takes that nobody disturbs, here and now
    endings = []
    for number in range(20):
        pod = start(number)
        deadline = time.monotonic() + chance.uniform(0, whole)
        while time.monotonic() < deadline:
            pass
        alive = pods.processes()
        if alive:
            victim = chance.choice(alive)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        seen = pods.end(pod, launching=True)
        endings.append((seen.phase, seen.exit_code, seen.message))
        assert (
            endings[-1]
            in [
                ("Succeeded", 0, ""),
                ("Failed", 137, "main: Error (exit code 137)"),
                ("Failed", -1, "prep: Error (exit code 137)"),
                DELETED,
            ]
            or "the container" in seen.message
        ), (number, endings[-1])
        pods.assert_nothing_left()
    runs = (pods.shared / "runs").read_text().split() if (pods.shared / "runs").exists() else []
    assert len(runs) == len(set(runs))
    assert len(set(endings)) > 1, "every kill came to nothing"
