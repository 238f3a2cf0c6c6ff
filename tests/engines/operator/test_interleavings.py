"""Whatever the order of events, and wherever a runner dies, a Workflow ends the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ffdl.engines.local.pod import PodObservation

# How the attempts of each node end, in order; what comes after the last is a success.
SCRIPTS: dict[str, dict[str, list[int]]] = {
    "all well": {},
    "infrastructure": {"download": [75], "checkpoint": [137, -1, 75], "learner(0:0)": [-1, 75], "learner(2:2)": [143]},
    "a crash": {"checkpoint": [75], "learner(1:1)": [75, 3], "learner(2:2)": [70]},
    "download fails": {"download": [75, 70], "checkpoint": [70]},
    "exit step too": {"learner(0:0)": [1], "store-results": [75, 75]},
}
EXPECTED = {
    "all well": "Succeeded",
    "infrastructure": "Succeeded",
    "a crash": "Failed",
    "download fails": "Failed",
    "exit step too": "Failed",
}


def _observe(run: Any, node: dict[str, Any], script: dict[str, list[int]]) -> PodObservation:
    name, _, attempt = node["displayName"].rpartition("(")
    codes = script.get(name, [])
    code = codes[int(attempt[:-1])] if int(attempt[:-1]) < len(codes) else 0
    if code == -1:
        return PodObservation("Error", -1, "pod deleted", finished_at=run.now)
    phase = "Failed" if code else "Succeeded"
    return PodObservation(phase, code, f"main: Error (exit code {code})" if code else "", finished_at=run.now)


def _play(run: Any, script: dict[str, list[int]], dice: random.Random) -> None:
    """Plays until the Workflow has ended: any running pod may end, any pass may be lost, halves of launches too."""
    suspended = False
    for _ in range(3000):
        act = dice.random()
        alive = [n for n in run.nodes("Pod") if n["phase"] in ("Pending", "Running") and _known(run, n)]
        if act < 0.35 and alive:
            node = dice.choice(alive)
            run.pods[run.pod(node)] = _observe(run, node, script)
        elif act < 0.45:
            suspended = not suspended
            run.set(suspend=suspended)
        elif act < 0.55:
            run.now += dice.choice([0.1, 3, 6, -2])
        decision = run.decide()
        if dice.random() < 0.15:
            continue  # died before the status was written
        run.write(decision)
        for one in [*decision.start, *decision.resources]:
            if dice.random() < 0.8:  # else died before it was launched
                phase = "Succeeded" if one in decision.resources else "Running"
                run.pods[one.pod_name] = PodObservation(phase, 0 if phase == "Succeeded" else None, finished_at=run.now)
                run.started.append(one.pod_name)
        assert not decision.terminate
        if decision.status["phase"] not in ("Running", "Pending"):
            return
        if not suspended and decision.wake is not None and dice.random() < 0.5:
            run.now = max(run.now, decision.wake)
    raise AssertionError("it never ended")


def _known(run: Any, node: dict[str, Any]) -> bool:
    hashed = "-" + node["id"].rpartition("-")[2]
    return any(name.endswith(hashed) and not pod.ended for name, pod in run.pods.items())


@pytest.mark.parametrize("name", SCRIPTS)
def test_any_order_leads_to_the_same_end(make: Any, machine: Any, name: str) -> None:
    """Ends in any order, suspended and resumed at random, passes lost, pods not launched: one outcome, no pod twice."""
    first = random.randrange(1 << 30)
    for seed in range(first, first + 25):
        print(f"seed {seed}")
        run = machine(make.job(3))
        _play(run, SCRIPTS[name], random.Random(seed))
        assert run.phase == EXPECTED[name]
        assert len(run.started) == len(set(run.started)), "a pod ran twice"
        attempts = {n["displayName"]: len(n["children"]) for n in run.nodes("Retry")}
        for node, codes in SCRIPTS[name].items():
            final = codes[-1] in (1, 3, 70) or node not in attempts
            assert attempts.get(node, len(codes)) == len(codes) + (not final)
        assert all(n["phase"] not in ("Running", "Pending") for n in run.nodes())
        assert (".onExit[0].store-results(0)" in str(run.nodes())) is (EXPECTED[name] == "Failed")


def test_stopped_at_any_moment_it_ends(make: Any, machine: Any) -> None:
    """Stop, in whatever state the job is in, suspended or not: it ends Failed and the exit step ran at most once."""
    first = random.randrange(1 << 30)
    for seed in range(first, first + 40):
        print(f"seed {seed}")
        dice = random.Random(seed)
        run = machine(make.job(3))
        for _ in range(dice.randrange(1, 25)):
            alive = [n for n in run.nodes("Pod") if n["phase"] == "Running" and _known(run, n)]
            if alive and dice.random() < 0.6:
                node = dice.choice(alive)
                run.pods[run.pod(node)] = _observe(run, node, SCRIPTS["infrastructure"])
            run.now += dice.choice([0, 6])
            run.set(suspend=dice.random() < 0.3)
            decision = run.decide()
            run.write(decision)
            if dice.random() < 0.8:
                run.launch(decision)
        if run.phase != "Running":
            continue
        done = run.node("")["phase"] == "Succeeded" if run.nodes() else False
        run.set(shutdown="Stop").go()
        run.set(suspend=False).go()
        for name in [n for n in run.running() if n.startswith("store-results")]:
            run.end(name)
        assert run.phase == ("Succeeded" if done else "Failed")
        assert sum("onExit[0].store-results(" in n["name"] for n in run.nodes()) <= 1
