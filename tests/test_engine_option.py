"""`pytest --engine argo`, `--no-skips`: a run that was to see a cluster and saw none is not a success."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def nothing_selected(path: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--engine",
        "argo",
        "tests/behaviours/test_train.py",
        "-k",
        "no_such_test",
    ]
    env = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("go") is None, reason="needs root and Go")
def test_where_a_cluster_is_possible_nothing_is_a_failure() -> None:
    """CI that silently stops testing on a cluster would stay green for months."""
    done = nothing_selected(os.environ["PATH"])
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "nothing ran on the cluster" in done.stdout


def test_where_none_is_possible_it_is_said(tmp_path: Path) -> None:
    """A laptop without Go runs what it can and reads what it did not."""
    done = nothing_selected(str(tmp_path))
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout
    assert "behaviours on a cluster: none" in done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "by workers"])
def test_where_all_is_there_a_skip_is_a_failure(workers: tuple[str, ...]) -> None:
    """A cluster that was not ready would silently take its tests out of CI."""
    env = {name: value for name, value in os.environ.items() if name != "FFDL_TEST_CLUSTER"}  # without it they skip
    command = [sys.executable, "-m", "pytest", *workers, "tests/cluster/test_cluster.py"]
    done, strict = (
        subprocess.run([*command, *more], cwd=ROOT, env=env, capture_output=True, text=True)
        for more in ((), ("--no-skips",))
    )
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert strict.returncode == pytest.ExitCode.TESTS_FAILED, strict.stdout
    assert "skipped, which is a failure with --no-skips" in strict.stdout
