"""The house's own rules: imports run one way, and breaking that is noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("workflows", "engines", "steps", "learner", "images", "cli")
LINT = shutil.which("lint-imports", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


def lint(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    assert LINT is not None
    command = [LINT, "--config", str(tmp_path / "pyproject.toml"), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)


def installed(tmp_path: Path) -> Path:
    """The package as a regular install lays it out."""
    shutil.copytree(ROOT / "ffdl", tmp_path / "ffdl", ignore=shutil.ignore_patterns("__pycache__"))
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / "ffdl" / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path / "ffdl"


@pytest.mark.skipif(LINT is None, reason="needs import-linter: pip install '.[lint]'")
@pytest.mark.parametrize(
    ("where", "planted"),
    [
        ("workflows/job.py", "from ..engines import base"),
        ("learner/session.py", "import yaml"),
        ("steps/download.py", "from ..engines import base"),
        ("engines/local/runner.py", "from ...steps import download"),
    ],
)
def test_a_planted_violation_of_the_import_rules_is_found(tmp_path: Path, where: str, planted: str) -> None:
    """The rooms stay apart because a wrong import fails the build, not because everybody remembers."""
    package = installed(tmp_path)
    clean = lint(tmp_path)
    assert clean.returncode == 0, clean.stdout
    victim = package / where
    victim.write_text(victim.read_text() + f"\n{planted}\n")
    assert lint(tmp_path).returncode != 0


def test_importing_ffdl_costs_nothing() -> None:
    """A script that imports ffdl, and every `ffdl --help`, must start at once."""
    code = (
        "import sys, ffdl; print([m for m in sys.modules if m.split('.')[0] in ('hera', 'pydantic', 'numpy', 'yaml')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=sysconfig.get_path("scripts")
    )
    assert done.stdout.strip() == "[]", done.stderr
