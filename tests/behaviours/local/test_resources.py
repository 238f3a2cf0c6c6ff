"""Leases on the machine: jobs share it without stepping on each other, and say why they wait."""

from __future__ import annotations

import time
from pathlib import Path

from tests.behaviours.local_user import LocalUser
from tests.behaviours.user import GATED

WAIT = 'until [ -e "$GATE" ]; do sleep 0.05; done'


def test_what_does_not_fit_waits_in_line_and_says_why(user: LocalUser) -> None:
    """Two jobs must not share a CPU each was promised; the second tells what it waits for, and starts by itself."""
    user.env["FFDL_MACHINE"] = "cpus=2,memory=8GiB"
    gate = user.folder / "gate"
    first = user.train(user.command(WAIT, "first", cpus=2, env={"GATE": str(gate)}))
    user.until(first, lambda s: s.state == "PROCESSING")
    second = user.train(user.command("true", "second", cpus=1))
    waiting = user.until(second, lambda s: s.state == "QUEUED")
    assert "needs 1 CPU" in waiting.reason
    assert "0 free" in waiting.reason
    line = next(line for line in user.ffdl("list").stdout.splitlines() if second in line)
    assert "QUEUED" in line
    assert "needs 1 CPU" in line
    gate.touch()
    assert user.until_over(first).state == "COMPLETED"
    assert user.until_over(second).state == "COMPLETED"


def test_waiting_in_line_costs_nothing(user: LocalUser) -> None:
    """What a job that waits writes down must not wake those that wait, itself among them."""
    user.env["FFDL_MACHINE"] = "cpus=1,memory=8GiB"
    running = user.train(user.command(WAIT, "running", cpus=1, env={"GATE": str(user.folder / "gate")}))
    user.until(running, lambda s: s.state == "PROCESSING")
    queued = [user.train(user.command("true", name, cpus=1)) for name in ("second", "third")]
    for job in queued:
        user.until(job, lambda s: s.state == "QUEUED")
    runners = [
        pid for pid, said in user.processes().items() if "ffdl-runner" in said and said.strip().endswith(tuple(queued))
    ]
    assert len(runners) == 2

    def woken() -> list[str]:
        lines = [line for pid in runners for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return [line for line in lines if line.startswith("voluntary_ctxt_switches")]

    def at_rest() -> bool:
        before = woken()
        time.sleep(0.5)
        return woken() == before

    user.wait_for(at_rest, "a runner that sleeps for half a second")
    (user.folder / "gate").touch()


def test_nobody_overtakes_in_the_line(user: LocalUser) -> None:
    """A large job is not starved by small ones that came after it."""
    user.env["FFDL_MACHINE"] = "cpus=2,memory=8GiB"
    gate = user.folder / "gate"
    running = user.train(user.command(WAIT, "running", cpus=1, env={"GATE": str(gate)}))
    user.until(running, lambda s: s.state == "PROCESSING")
    large = user.train(user.command("true", "large", cpus=2))
    user.until(large, lambda s: s.state == "QUEUED")
    small = user.train(user.command("true", "small", cpus=1))
    assert "ahead in line" in user.until(small, lambda s: s.state == "QUEUED").reason
    gate.touch()
    ends = [user.until_over(job) for job in (running, large, small)]
    assert [end.state for end in ends] == ["COMPLETED"] * 3
    assert (ends[1].started or 0) <= (ends[2].started or 0)


def test_what_can_never_fit_is_refused_at_once(user: LocalUser) -> None:
    """Waiting for ever is no answer."""
    user.env["FFDL_MACHINE"] = "cpus=2,memory=8GiB"
    for changes, said in (
        ({"cpus": 3}, "needs 3 CPUs, this machine has 2"),
        ({"gpus": 1}, "needs 1 GPU, this machine has 0"),
    ):
        folder = user.command("true", f"job-{next(iter(changes))}", **changes)
        done = user.ffdl("train", str(folder / "manifest.yml"), code=2)
        assert said in done.stderr
    assert user.engine.ids() == []


def test_learners_get_gpus_of_their_own(user: LocalUser) -> None:
    """Two learners on one machine must not train on the same GPU."""
    user.env["FFDL_MACHINE"] = "cpus=4,memory=8GiB,gpus=4"
    command = 'echo "$LEARNER_ID:$CUDA_VISIBLE_DEVICES:$GPU_COUNT" > "$RESULT_DIR/gpus-$LEARNER_ID"'
    job = user.train(user.command(command, gpus=2, learners=2, cpus=1, completion="all"))
    assert user.until_over(job).state == "COMPLETED", user.story()
    said = [(user.results(job) / f"gpus-{n}").read_text().strip() for n in (1, 2)]
    assert said == ["1:0,1:2.000000", "2:2,3:2.000000"]


def test_halted_while_queued(user: LocalUser) -> None:
    """A halt is a halt in every phase: also before the first step."""
    user.env["FFDL_MACHINE"] = "cpus=1,memory=16GiB"
    first = user.train(user.job("first", cpus=1, env={"STEPS": "60", **GATED}))
    user.until(first, lambda s: s.state == "PROCESSING")
    second = user.train(user.job("second", cpus=1, env={"STEPS": "10"}))
    assert "needs 1 CPU" in (user.until(second, lambda s: s.state == "QUEUED").reason or "")
    user.ffdl("halt", second)
    assert user.ffdl("status", second).stdout.strip() == "HALTED"
    user.ffdl("halt", first)
    assert user.ffdl("status", first).stdout.strip() == "HALTED"
    user.until_at_rest()
    for job in (first, second):
        user.ffdl("resume", job)
    user.open_gate(first)
    assert [user.until_over(job).state for job in (first, second)] == ["COMPLETED"] * 2
