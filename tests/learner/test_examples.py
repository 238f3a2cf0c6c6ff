"""The examples' own code, by hand and under an agent's hand: what a new user runs first."""

from __future__ import annotations

import filecmp
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.learner.conftest import AgentEnd, Start

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = [sys.executable, str(EXAMPLES / "digits" / "digits.py")]


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    return output


def test_digits_by_hand(start: Start, tmp_path: Path) -> None:
    """`python digits.py` needs nothing but the library, and its results are the same bytes every time."""
    outputs = [finish(start("", "--epochs", "3", command=DIGITS, env={"RESULT_DIR": name})) for name in ("a", "b")]
    assert outputs[0] == outputs[1]
    lines = outputs[0].splitlines()
    assert len(lines) == 4
    assert all(re.fullmatch(r"epoch \d/3: loss \d\.\d{4}, accuracy 0\.\d{4}", line) for line in lines[:3])
    assert lines[3].startswith("accuracy on 360 images never trained on: ")
    assert filecmp.cmp(tmp_path / "a" / "model.npz", tmp_path / "b" / "model.npz", shallow=False)
    assert json.loads((tmp_path / "a" / "results.json").read_text())["accuracy"] > 0.8


def test_digits_learn(start: Start, tmp_path: Path) -> None:
    """At least 97 % of the images never seen, already after a tenth of the training."""
    finish(start("", "--epochs", "30", command=DIGITS, env={"RESULT_DIR": "results"}))
    assert json.loads((tmp_path / "results" / "results.json").read_text())["accuracy"] >= 0.97


def test_digits_halted_end_with_the_same_model(agent: AgentEnd, start: Start, tmp_path: Path) -> None:
    """Halted twice at any step and resumed, the model is the same, bit for bit, and so is the log."""
    alone = finish(start("", "--epochs", "8", command=DIGITS, env={"RESULT_DIR": "alone"}))
    env = {"FFDL_AGENT_SOCKET": str(agent.path), "RESULT_DIR": "halted"}
    log = ""
    for stop in (3, 40):
        process = start("", "--epochs", "8", command=DIGITS, env=env)
        while agent.expect("step")["step"] < stop:
            pass
        agent.halt()
        assert agent.expect("halted")["checkpoint"] >= stop
        log += finish(process, 75)
        agent.expect("end")
    log += finish(start("", "--epochs", "8", command=DIGITS, env=env))
    assert log == alone
    assert filecmp.cmp(tmp_path / "alone" / "model.npz", tmp_path / "halted" / "model.npz", shallow=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_bash_goes_on_from_its_own_checkpoint(number: signal.Signals, start: Start, tmp_path: Path) -> None:
    """A script without Python ends at SIGTERM, survives a kill, and finds the line that least squares finds."""
    command = ["bash", str(EXAMPLES / "bash" / "fit.sh")]
    env = {name: str(tmp_path / name) for name in ("CHECKPOINT_DIR", "RESULT_DIR")} | {"ROUNDS": "15", "RATE": "0.0008"}
    process = start("", command=command, env=env, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("round 1 of 15: loss ")
    os.killpg(process.pid, number)
    finish(process, 75 if number == signal.SIGTERM else -number)
    assert re.match(r"going on after round [1-9]\d*\n", finish(start("", command=command, env=env)))
    found = json.loads((tmp_path / "RESULT_DIR" / "fit.json").read_text())
    assert found["slope"] == pytest.approx(3.9324, abs=1e-4)  # as R's lm(dist ~ speed, cars) has it
    assert found["intercept"] == pytest.approx(-17.5791, abs=1e-4)
