"""The README's commands: what they lack is said in one line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def dev(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": path, "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(["/bin/sh", str(ROOT / "dev"), *arguments], env=env, capture_output=True, text=True)


def tools(tmp_path: Path, **scripts: str) -> str:
    """A PATH with what every machine has, and these commands."""
    for name in ("dirname", "cat", "cksum", "rm"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    return str(tmp_path)


def checkout(tmp_path: Path) -> Path:
    """The script in a folder of its own, so that no virtual environment of ours is in its way."""
    for name in ("dev", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path / "dev"


def test_without_a_recent_python_one_line_says_so(tmp_path: Path) -> None:
    """A new user on an old machine reads what to install, not a syntax error."""
    (tmp_path / "bin").mkdir()
    path = tools(tmp_path / "bin", python3="exit 1")
    script = checkout(tmp_path)
    done = subprocess.run(["/bin/sh", str(script), "test"], env={"PATH": path}, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        "ffdl needs Python 3.11 or newer: install one, or name it with PYTHON=/path/to/python3 ./dev"
    ]


def test_without_venv_one_line_says_so(tmp_path: Path) -> None:
    """Debian's Python comes without venv."""
    (tmp_path / "bin").mkdir()
    path = tools(tmp_path / "bin", python3='case "$*" in *ensurepip*) exit 1;; *) exit 0;; esac')
    script = checkout(tmp_path)
    done = subprocess.run(["/bin/sh", str(script), "train"], env={"PATH": path}, capture_output=True, text=True)
    assert done.returncode != 0
    assert "has no venv: install it (Debian, Ubuntu: apt install python3-venv)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_word_gets_the_usage() -> None:
    """Nothing is installed for a typing error."""
    done = dev("trian", path=os.environ["PATH"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ./dev train | test")
