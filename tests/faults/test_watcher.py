"""Looking at a job from its node: recovery times come from here, so they must not be those of another process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import cgroups
from tests.cluster.place import Place
from tests.faults.watcher import Watcher, alive, began

PLACE = Place(Path("/nowhere"), 6)


def record(step: int, at: float) -> str:
    return (
        f'{{"meta": {{"time": {int(at * 1000)}}}, "etimes": {{"iteration": {{"type": "INT", "value": "{step}"}}}}}}\n'
    )


def test_a_step_counts_once_its_line_is_whole(tmp_path: Path) -> None:
    """The file is read while it is written."""
    watcher = Watcher(PLACE, "training-x", tmp_path)
    assert watcher.last_step() == 0
    folder = tmp_path / "job/logs/learner-1"
    folder.mkdir(parents=True)
    (folder / "evaluation-metrics.txt").write_text(record(1, 10.0) + record(2, 11.5) + record(3, 12.0)[:-8])
    assert watcher.steps() == [(10.0, 1), (11.5, 2)]
    assert watcher.stepped(10.0) == 11.5
    assert watcher.stepped(11.5) is None


def test_the_epoch_is_that_of_the_last_helper(tmp_path: Path) -> None:
    """A helper that has come back is told from the one that is dying by it."""
    watcher = Watcher(PLACE, "training-x", tmp_path)
    assert watcher.epoch() == 0
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper/address.json").write_text('{"epoch": 3}')
    assert watcher.epoch() == 3


def test_processes_are_found_by_program_and_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill -9` must hit what the scenario says, of this job alone, and no shell around it."""
    program = tmp_path / "train.py"
    program.write_text("import time; print(flush=True); time.sleep(600)")
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    started = time.time()
    commands = {
        "ours": ([str(python), str(program)], "training-x"),
        "another job's": ([str(python), str(program)], "training-y"),
        "the shell": (["sh", "-c", f"{python} {program}; true"], "training-y"),
    }
    running = {}
    for name, (command, job) in commands.items():
        env = {**os.environ, "TRAINING_ID": job}
        running[name] = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True)
    try:
        for process in running.values():
            assert process.stdout is not None
            process.stdout.readline()
        monkeypatch.setattr(cgroups, "members", lambda name: [process.pid for process in running.values()])
        watcher = Watcher(PLACE, "training-x", tmp_path)
        ((pid, since),) = watcher.processes("script").items()
        assert pid == running["ours"].pid
        assert started - 1 < since < time.time() + 1
        watcher.kill("script")
        assert running["ours"].wait(60) == -9
        assert watcher.processes("script") == {}
        assert not alive(pid)
        assert began(pid) == float("inf")
    finally:
        for process in running.values():
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                continue
            finally:
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
