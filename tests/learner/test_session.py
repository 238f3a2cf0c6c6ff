"""The script's side of a job: what it says reaches the agent, a halt comes at the next step, nothing stalls it."""

from __future__ import annotations

import ast
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffdl import learner
from ffdl.learner import channel, checkpoint, contract, saver
from tests.learner.conftest import AgentEnd, Start

TRAINING = """
import sys, time
import numpy as np
from ffdl import learner
steps, pause = int(sys.argv[1]), float(sys.argv[2])
with learner.session() as job:
    state = job.restore() or {"step": 0, "sum": 0.0, "rng": np.random.default_rng(1).bit_generator.state}
    print("from", state["step"], job.rank, job.size, job.generation, flush=True)
    rng = np.random.default_rng()
    rng.bit_generator.state = state["rng"]
    for step in range(state["step"], steps):
        time.sleep(pause)
        state["sum"] += rng.random()
        state["rng"] = rng.bit_generator.state
        state["step"] = step + 1
        job.step(step + 1, of=steps, state=state, loss=1 / (step + 1))
print("sum", state["sum"].hex(), flush=True)
"""


def env(agent: AgentEnd) -> dict[str, str]:
    return {"FFDL_AGENT_SOCKET": str(agent.path)}


def finish(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    return output, errors


def committed(agent: AgentEnd) -> list[int]:
    return [each.step for each in checkpoint.committed(agent.world["checkpoint_dir"])]


def test_every_step_is_told(agent: AgentEnd, start: Start) -> None:
    """The loss curve of a job has no holes, however quick the steps are, and the place in the job is known."""
    agent.world |= {"rank": 2, "size": 4, "generation": 9}
    output, _ = finish(start(TRAINING, "3000", "0", env=env(agent)))
    assert output.startswith("from 0 2 4 9\n")
    hello = agent.expect("hello")
    assert hello == {"type": "hello", "pid": hello["pid"], "version": 1}
    agent.expect("end")
    assert [record[0] for record in agent.records()] == list(range(1, 3001))
    assert [record[2] for record in agent.records()] == [{"loss": 1 / step} for step in range(1, 3001)]
    assert all(abs(record[1] - time.time()) < 60 for record in agent.records())
    told = [message for message in agent.said if message["type"] == "step"]
    assert all(message["of"] == 3000 for message in told)
    assert all([message["step"], message["time"], message["metrics"]] == message["records"][-1] for message in told)
    assert len(told) < 300  # together, not one by one
    assert agent.said[-1] == {"type": "bye"}
    assert agent.longest <= contract.MAX_FRAME


def test_halted_and_resumed_without_a_trace(agent: AgentEnd, start: Start) -> None:
    """A halt commits the state at the next step and ends with 75; a training halted often ends as one left alone."""
    alone, _ = finish(start(TRAINING, "200", "0"))
    last = 0
    for stop in (7, 30, 61):
        process = start(TRAINING, "200", "0.02", env=env(agent))
        while agent.expect("step")["step"] < stop:
            pass
        agent.halt()
        said = agent.expect("halted")
        output, errors = finish(process, 75)
        assert output.startswith(f"from {last} ")
        last = said["step"]
        assert said["checkpoint"] == last
        assert committed(agent)[0] == last
        assert f"halted at step {last}" in errors
        agent.expect("end")
        kinds = [message["type"] for message in agent.said[-3:]]
        assert kinds in (["checkpointed", "halted", "bye"], ["step", "halted", "bye"])
    output, _ = finish(start(TRAINING, "200", "0", env=env(agent)))
    assert output.splitlines()[1] == alone.splitlines()[1]


def test_sigterm_is_a_halt(agent: AgentEnd, start: Start) -> None:
    """A drained node or a preempted pod loses no step: SIGTERM commits the state like a halt."""
    process = start(TRAINING, "100000", "0.005", env=env(agent))
    agent.expect("step")
    process.send_signal(signal.SIGTERM)
    said = agent.expect("halted")
    finish(process, 75)
    assert committed(agent) == [said["step"]]


def test_a_halt_waits_for_the_save_before_it(agent: AgentEnd, start: Start) -> None:
    """The state saved at the halt is the newest checkpoint, also when another one is on its way to the disk."""
    agent.world |= {"steps": 1, "keep": 2}
    script = TRAINING.replace('"sum": 0.0', '"sum": 0.0, "more": np.zeros(4_000_000)')
    process = start(script, "100000", "0.001", env=env(agent))
    agent.expect("step")
    agent.halt()
    said = agent.expect("halted")
    finish(process, 75)
    assert committed(agent)[0] == said["step"]
    assert checkpoint.verify(os.path.join(agent.world["checkpoint_dir"], f"step-{said['step']}"))


def test_saves_by_steps_and_by_time(agent: AgentEnd, start: Start) -> None:
    """`checkpoint.interval` is kept, in steps or in seconds, and each commit is told once it is durable."""
    agent.world |= {"steps": 100, "keep": 50}
    script = TRAINING.replace("job.step(", "if step % 10 == 0: time.sleep(0.02)\n        job.step(")
    finish(start(script, "1000", "0", env=env(agent)))
    agent.expect("end")
    told = [message["step"] for message in agent.said if message["type"] == "checkpointed"]
    assert told == committed(agent)[::-1]
    assert len(told) >= 8
    assert [step // 100 for step in told] == list(range(1, len(told) + 1))
    agent.world |= {"steps": None, "interval": 0.1, "checkpoint_dir": agent.world["checkpoint_dir"] + "-2"}
    before = time.monotonic()
    finish(start(TRAINING, "300", "0.003", env=env(agent)))
    agent.expect("end")
    assert 3 <= len(committed(agent)) <= (time.monotonic() - before) / 0.1


def test_a_training_goes_on_without_its_agent(agent: AgentEnd, start: Start) -> None:
    """An agent's end is no exception in a training, which is to end too; it saves no step that nobody knows of."""
    agent.world |= {"steps": 10}
    process = start(TRAINING, "400", "0.003", env=env(agent))
    agent.expect("checkpointed")
    agent.go_away()
    output, errors = finish(process)
    assert "sum" in output
    assert errors == ""
    assert 10 <= committed(agent)[0] <= agent.records()[-1][0]


def test_an_agent_that_hangs(agent: AgentEnd, start: Start) -> None:
    """While the agent is busy elsewhere, steps are kept for it and training does not wait; later it hears them all."""
    script = """
import sys
from ffdl import learner
with learner.session() as job:
    for step in range(1, 20001):
        job.step(step, loss=0.5)
        if step % 1000 == 0:
            job._channel.flush()  # as every 0.2 s
    print("trained", flush=True)
    sys.stdin.readline()
"""
    agent.attentive.clear()
    process = start(script, env=env(agent), stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "trained\n"
    agent.attentive.set()
    finish(process)
    agent.expect("end")
    assert [record[0] for record in agent.records()] == list(range(1, 20001))


def test_a_path_of_any_length(tmp_path: Path, start: Start) -> None:
    """A deep home folder must not break jobs: the path of a Unix socket is limited to 108 bytes, ours is not."""
    end = AgentEnd(tmp_path / ("ä" * 60) / ("b" * 120))
    try:
        finish(start(TRAINING, "3", "0", env=env(end)))
        end.expect("bye")
        assert len(end.records()) == 3
    finally:
        end.go_away()


def test_no_agent_is_another_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Without the agent's word a script can't know where its checkpoints are: it must not start over elsewhere."""
    monkeypatch.setenv("FFDL_AGENT_SOCKET", str(tmp_path / "agent.sock"))
    monkeypatch.setattr(channel.Channel.__init__, "__defaults__", (0.2,))
    with pytest.raises(SystemExit) as caught, learner.session():
        pass
    assert caught.value.code == 75
    assert "no agent at" in capfd.readouterr().err


@pytest.mark.usefixtures("by_hand")
def test_by_hand_nothing_happens(tmp_path: Path) -> None:
    """The same script runs on a laptop: no files, no exceptions, and SIGTERM and its state are left alone."""
    before = signal.getsignal(signal.SIGTERM)
    with learner.session() as job:
        assert (job.rank, job.size, job.generation) == (0, 1, 0)
        assert job.restore() is None
        assert signal.getsignal(signal.SIGTERM) is before
        for step in range(100):
            job.step(step, of=100, state={"anything": object()}, loss=0.1, label="text")
        assert job.save({"step": 3}) is False
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FFDL_AGENT_SOCKET", raising=False)
    monkeypatch.delenv("CHECKPOINT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("by_hand")
def test_by_hand_with_a_checkpoint_dir(tmp_path: Path, start: Start) -> None:
    """With CHECKPOINT_DIR set by hand, what a job would do can be tried out: SIGTERM saves, the next run goes on."""
    process = start(TRAINING, "100000", "0.005", env={"CHECKPOINT_DIR": "here"})
    assert process.stdout is not None
    assert process.stdout.readline() == "from 0 0 1 0\n"
    process.send_signal(signal.SIGTERM)
    finish(process, 75)
    (only,) = checkpoint.committed(str(tmp_path / "here"))
    output, _ = finish(start(TRAINING, str(only.step + 1), "0", env={"CHECKPOINT_DIR": "here"}))
    assert output.startswith(f"from {only.step} ")


@pytest.mark.usefixtures("by_hand")
def test_save_is_durable_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`job.save` may be the last thing before a script does something risky."""
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path))
    with learner.session() as job:
        job.step(4, state={"a": 1})
        assert job.save(lambda: {"a": np.arange(5)})
        assert checkpoint.verify(str(tmp_path / "step-4"))
        assert job.restore()["a"].tolist() == [0, 1, 2, 3, 4]  # type: ignore[index]


@pytest.mark.usefixtures("by_hand")
def test_mistakes_are_errors_at_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that can't be saved is told at the first step, not when the first checkpoint or a halt is due."""
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path))
    with pytest.raises(TypeError, match=r"state\['w'\]\[0\] is an object"), learner.session() as job:
        job.step(1, state={"w": [object()]})
    for wrong, error in (("one", TypeError), (1.5, TypeError), (-1, ValueError)):
        with pytest.raises(error, match="step must"), learner.session() as job:
            job.step(wrong)  # type: ignore[arg-type]


def test_state_may_be_a_function(agent: AgentEnd, start: Start) -> None:
    """A state that is costly to gather is gathered only when it is saved."""
    agent.world |= {"steps": 10, "keep": 9}
    script = """
from ffdl import learner
calls = []
def gather():
    calls.append(1)
    return {"calls": len(calls)}
with learner.session() as job:
    for step in range(1, 31):
        job.step(step, state=gather)
        job._saver.finish()
print(len(calls))
"""
    output, _ = finish(start(script, env=env(agent)))
    assert output == "3\n"
    assert committed(agent) == [30, 20, 10]


def test_a_halt_without_a_state(agent: AgentEnd, start: Start) -> None:
    """A script that keeps its own checkpoints is halted at a step boundary as well."""
    script = """
import time
from ffdl import learner
with learner.session() as job:
    for step in range(1, 100000):
        time.sleep(0.002)
        job.step(step)
"""
    process = start(script, env=env(agent))
    agent.expect("step")
    agent.halt()
    assert agent.expect("halted")["checkpoint"] is None
    finish(process, 75)
    assert committed(agent) == []


def test_a_halt_on_a_full_disk(agent: AgentEnd, start: Start) -> None:
    """What can't be saved at a halt is said; the job still halts, and goes on from the last committed checkpoint."""
    agent.world |= {"steps": 5}
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"
    script = TRAINING.replace("time.sleep(pause)", f"time.sleep(pause)\n        if step == 8: {full}")
    process = start(script, "100000", "0.02", env=env(agent))
    agent.expect("checkpointed")
    while agent.expect("step")["step"] < 10:
        pass
    agent.halt()
    assert agent.expect("halted")["checkpoint"] is None
    _, errors = finish(process, 75)
    assert committed(agent) == [5]
    assert errors.count("could not be written") == 1
    assert "could not be saved; the last committed checkpoint stays" in errors


def test_data_loaders_end_as_ever(agent: AgentEnd, start: Start) -> None:
    """Forked workers die of SIGTERM (pools end theirs so), don't talk to the agent, and don't hold its line open."""
    script = """
import os, signal, sys, time
from ffdl import learner
with learner.session() as job:
    job.step(1)
    child = os.fork()
    if not child:
        try:
            job.step(77, state={"step": 77})
            assert job.save({}) is False and job.restore() is None
            print("child", flush=True)
            time.sleep(60)
        finally:
            os._exit(1)
    sys.stdin.readline()
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    job.step(2)
"""
    process = start(script, env=env(agent), stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "child\n"
    output, _ = finish(process)
    assert output == "-15\n"
    agent.expect("end")
    assert [record[0] for record in agent.records()] == [1, 2]


@pytest.mark.usefixtures("by_hand")
def test_a_users_own_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's own SIGTERM handler is called too, and is back in its place after the session, also a nested one."""
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path))
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    try:
        with learner.session() as job:
            with learner.session() as inner:
                inner.step(1)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(learner.Halted):
                job.step(5, state={"x": 1})
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert checkpoint.committed(str(tmp_path))[0].step == 5


def test_metrics_of_all_kinds(agent: AgentEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a framework calls a number arrives as one; a loss that is NaN too, since that is what one must see."""
    monkeypatch.setenv("FFDL_AGENT_SOCKET", str(agent.path))
    with learner.session() as job:
        job.step(
            np.int64(1), a=np.float32(0.5), b=np.array(2), c=True, d=math.nan, e=-math.inf, f=10**30, g=np.array([3.0])
        )  # type: ignore[arg-type]
        many = {f"metric {number:06}": number / 7 for number in range(6000)}
        job.step(2, **many)
        for wrong in ("text", None, [1], np.arange(3), 1j):
            with pytest.raises(TypeError, match="the metric 'x' is not a number"):
                job.step(3, x=wrong)
        with pytest.raises(ValueError, match="more than 200 characters"):
            job.step(3, **{"x" * 201: 1})
    agent.expect("bye")
    first, *rest = agent.records()
    assert first[0] == 1
    assert math.isnan(first[2].pop("d"))
    assert first[2] == {"a": 0.5, "b": 2, "c": 1, "e": -math.inf, "f": 10**30, "g": 3.0}
    told: dict[str, float] = {}
    for step, _, metrics in rest:
        assert step == 2
        told |= metrics
    assert told == many
    assert agent.longest <= contract.MAX_FRAME


def test_a_step_costs_microseconds(agent: AgentEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts with quick steps can call it at each one: under 20 µs here, a few on a machine at rest."""
    monkeypatch.setenv("FFDL_AGENT_SOCKET", str(agent.path))
    agent.world |= {"interval": 3600}
    state = {"weights": np.zeros(1000)}
    with learner.session() as job:
        best = math.inf
        for _ in range(5):
            start = time.perf_counter()
            for step in range(5000):
                job.step(step, of=5000, state=state, loss=0.25)
            best = min(best, (time.perf_counter() - start) / 5000)
    print(f"{best * 1e6:.2f} µs a step")
    assert best < 20e-6


ALONE = """
import sys
with_numpy = "numpy" in sys.modules
from ffdl import learner
from ffdl.learner import checkpoint
loaded = {"numpy", "hashlib", "socket", "threading", "subprocess", "logging"} & set(sys.modules)
assert with_numpy or not loaded, loaded
with learner.session() as job:
    state = job.restore() or {"step": 0}
    for step in range(state["step"], state["step"] + 3):
        job.step(step + 1, state={"step": step + 1, "blob": b"x" * 1000}, loss=1.0)
    assert job.save({"step": step + 1, "blob": b"y"})
print([each.step for each in checkpoint.committed(sys.argv[1])], "numpy" in sys.modules)
"""
OTHER = "/usr/bin/python3"


@pytest.mark.parametrize("python", [sys.executable, OTHER])
def test_works_alone_in_another_python(python: str, agent: AgentEnd, start: Start, library: Path) -> None:
    """In a user's image there is another Python, perhaps no NumPy, and of us only this folder."""
    if not Path(python).exists():
        pytest.skip(f"no {python} here")
    for expected in ("[3] False\n", "[6, 3] False\n"):
        command = [python, "-S", "-W", "error", "-c", ALONE, agent.world["checkpoint_dir"]]
        process = start("", command=command, env=env(agent) | {"PYTHONPATH": str(library)})
        assert finish(process)[0] == expected


def test_python_3_9_can_read_it() -> None:
    """Images with older Pythons are common; the library promises 3.9."""
    for file in Path(learner.__file__).parent.glob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 9))


def test_importing_it_is_cheap(start: Start, library: Path) -> None:
    """Programs that only need the contract or the markers load no NumPy, no sockets and no OpenSSL."""
    script = """
import sys
from ffdl import learner
from ffdl.learner import checkpoint, contract
heavy = {"numpy", "_ssl", "_hashlib", "_socket", "threading", "asyncio", "logging", "subprocess"}
print(sorted(heavy & set(sys.modules)))
"""
    process = start("", command=[sys.executable, "-S", "-c", script], env={"PYTHONPATH": str(library)})
    assert finish(process)[0] == "[]\n"


def test_what_is_saved_in_a_world_outlasts_a_second_restore(agent: AgentEnd, start: Start) -> None:
    """A script may look once more at what it began with; what it has saved since is what all go on from next."""
    script = """
from ffdl import learner
def train(job):
    assert job.restore()["step"] == 5
    for step in (6, 7):
        job.step(step)
        assert job.save({"step": step})
    assert job.restore()["step"] == 5
learner.run(train)
"""
    checkpoints = agent.world["checkpoint_dir"]
    saver.Saver(checkpoints, 3, {"generation": 1}, print).save(5, {"step": 5})
    agent.world |= {"step": 5, "common": 5}
    finish(start(script, env=env(agent)))
    assert committed(agent) == [7, 6, 5]


SLOW_DISK = """
import threading
from ffdl import learner
from ffdl.learner import checkpoint

going_on = threading.Event()
write = checkpoint.write

def slow(*arguments, **options):
    assert going_on.wait(30), "no step while the disk was at it"
    return write(*arguments, **options)

def train(job):
    checkpoint.write = slow
    for step in range(1, 11):
        job.step(step, state={"step": step})
    going_on.set()

learner.run(train)
"""


def test_a_step_does_not_wait_for_the_disk_and_the_end_does(agent: AgentEnd, start: Start) -> None:
    """While a checkpoint is written, those that train together go on; it is there when they have finished."""
    agent.world |= {"size": 2, "addresses": [["", 0], ["", 0]], "key": "00", "step": -1, "steps": 5}
    agent.world.pop("interval", None)
    finish(start(SLOW_DISK, env=env(agent)))
    assert committed(agent)[0] == 5


@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_learners_that_come_and_go_have_no_collectives(agent: AgentEnd, start: Start, mode: str) -> None:
    """One that had them with itself alone would take its own values for those of all."""
    agent.world |= {"rank": 1, "size": 2, "mode": mode, "key": "00", "servers": [["", 0]], "step": None}
    process = start("from ffdl import learner\nlearner.run(lambda job: job.overlay())", env=env(agent))
    errors = finish(process, 1)[1]
    assert f"with mode: {mode} learners come and go, and have no collectives: write mode: sync, or average" in errors


LONG_WAIT = """
import sys
from ffdl import learner

sys.modules[learner.Session.__module__].NEXT_WORLD_WITHIN = 0.0

def train(job):
    print("generation", job.generation, job.rank, job.size, flush=True)
    if job.generation == 3:
        while not job._channel.broken:
            job._channel.wait(0.1)
        print("broken", flush=True)
        raise learner.PeerLost("gone")

learner.run(train)
"""


def test_the_next_world_is_waited_for_as_long_as_it_takes(agent: AgentEnd, start: Start) -> None:
    """A pod that finds no room for an hour: the others stay, once they have heard that a world is to come."""
    agent.world |= {"size": 2, "addresses": [["", 0], ["", 0]], "key": "00", "step": -1}
    process = start(LONG_WAIT, env=env(agent))
    assert agent.expect("hello")["follows"] is True
    agent.tell({"type": "break", "generation": 3})
    assert process.stdout.readline() == "generation 3 0 2\n"
    assert process.stdout.readline() == "broken\n"
    agent.tell({**agent.world, "generation": 4, "rank": 1})
    output, errors = finish(process)
    assert output == "generation 4 1 2\n"
    assert "going on in generation 4" in errors
