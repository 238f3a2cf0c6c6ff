"""The images that jobs use, built by `ffdl images build` from this checkout and kept by their content."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ffdl.images.context import write_context

from .build import BuildError

KEPT = {"jobs": 2, "learners": 4}  # how many folders stay in the cache: a version of the code each, a recipe each


def archives(cache: Path, base: Path, names: Sequence[str]) -> list[Path]:
    """Image archives of the present code, built now if they are not there. `base` is the archive of their base."""
    files = {name: cache / folder(base, name) / f"ffdl-{name}.tar" for name in names}
    missing: dict[Path, list[str]] = {}
    for name, file in files.items():
        if not file.exists():
            missing.setdefault(file.parent, []).append(name)
    for target, wanted in missing.items():
        _build(target, base, wanted)
    for kind in {file.parent.parent for file in files.values()}:
        for target in {file.parent for file in files.values() if file.parent.parent == kind}:
            os.utime(target)
        for old in sorted(kind.iterdir(), key=lambda path: path.stat().st_mtime)[: -KEPT[kind.name]]:
            shutil.rmtree(old)
    return list(files.values())


def folder(base: Path, name: str) -> Path:
    """Where the image `name` is in the cache: a place that changes with whatever goes into it."""
    with tempfile.TemporaryDirectory() as work:
        write_context(Path(work))
        if name.startswith("learner-"):  # nothing of ours is in it
            return Path("learners") / _digest(base, [Path(work, f"{name}.Containerfile")], work)
        return Path("jobs") / _digest(base, sorted(Path(work).rglob("*")), work)


def _build(target: Path, base: Path, names: Sequence[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    ffdl = [sys.executable, "-c", "from ffdl.cli import main; main()"]
    command = [*ffdl, "images", "build", *names, "--base", f"oci-archive:{base}", "--archive", str(target)]
    env = {**os.environ, "BUILDAH_ISOLATION": "chroot"}  # else it leaves a bridge and its rules behind
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise BuildError(f"ffdl images build failed: {done.stderr.strip()[-2000:]}")


def _digest(base: Path, files: Sequence[Path], root: str) -> str:
    seen = hashlib.sha256(base.name.encode())
    for path in files:
        if path.is_file():
            seen.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return seen.hexdigest()[:12]
