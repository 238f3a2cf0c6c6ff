"""Halt and resume: the machine is free while a job is halted, and the result is that of a run nobody disturbed."""

from __future__ import annotations

import random
import subprocess

import pytest

from tests.behaviours.user import FFDL, GATE, GATED, PATIENCE, SHORT, User


def assert_at_rest(user: User, job: str) -> None:
    assert user.ffdl("status", job).stdout.strip() == "HALTED"
    user.until_at_rest()  # no process while a job is halted, and it holds nothing of the machine


@pytest.mark.timeout(900)  # six starts of a job, beside the one that is compared with
def test_five_halts_leave_no_trace_in_the_model(user: User, dice: random.Random, reference: bytes) -> None:
    """A user halts to free the machine for something urgent, and must be able to forget that it happened."""
    steps = sorted(dice.sample(range(5, 140), 5))
    job = user.train(user.job(env=GATED))
    for step in steps:
        user.until_step(job, step)
        user.ffdl("halt", job)
        assert_at_rest(user, job)
        user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED"
    assert user.model(job) == reference


def test_halted_and_resumed_within_a_second_ten_times(user: User) -> None:
    """Buttons get pressed twice. A job never sticks between halted and running."""
    job = user.train(user.job(env={**SHORT, **GATED}))
    user.until_step(job, 3)
    for _ in range(10):
        user.ffdl("halt", "--no-wait", job)
        user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED"


def test_suspended_in_the_second_the_helper_dies(user: User, reference: bytes) -> None:
    """Nobody in the job hears the suspend then; the halt must come all the same, and lose nothing."""
    job = user.train(user.job(env=GATED))
    user.until_step(job, 30)
    assert user.kill("helper")
    user.ffdl("halt", job)
    assert_at_rest(user, job)
    user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED"
    assert user.model(job) == reference


def test_halt_and_resume_at_once_end_as_one_of_them(user: User) -> None:
    """Two people, two terminals: whoever comes last wins, and the job is never stuck between."""
    job = user.train(user.job(env={**SHORT, **GATED}))
    user.until_step(job, 2)
    verbs = [subprocess.Popen([str(FFDL), *verb, job], env=user.env) for verb in (["halt", "--no-wait"], ["resume"])]
    assert [verb.wait(PATIENCE) for verb in verbs] == [0, 0]
    if user.engine.workflow(job)["spec"].get("suspend"):
        user.until(job, lambda status: status.state == "HALTED")
        user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED"


def test_a_halted_script_that_knows_nothing_of_us(user: User) -> None:
    """A plain shell script gets SIGTERM, and goes on from what it left in CHECKPOINT_DIR."""
    script = f"""
i=$(cat "$CHECKPOINT_DIR/i" 2>/dev/null || echo 0)
echo from $i
while [ $i -lt 40 ]; do
  if [ $i -eq 39 ]; then {GATE}; fi
  i=$((i+1)); sleep 0.05; echo $i > "$CHECKPOINT_DIR/i.new" && mv "$CHECKPOINT_DIR/i.new" "$CHECKPOINT_DIR/i"
done
echo $i > "$RESULT_DIR/i"
"""
    job = user.train(user.command(script))
    user.wait_for(lambda: (user.volume(job) / "job/checkpoints/i").exists(), "the script's first file")
    user.ffdl("halt", job)
    assert_at_rest(user, job)
    user.ffdl("resume", job)
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED"
    assert (user.results(job) / "i").read_text() == "40\n"
    starts = [line for line in user.ffdl("logs", job).stdout.splitlines() if "from" in line]
    assert len(starts) == 2, starts
    assert not starts[1].endswith("from 0"), "the second attempt goes on where the first was"
