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

KEPT = 2  # versions of the code whose images stay in the cache


def archives(cache: Path, base: Path, names: Sequence[str]) -> list[Path]:
    """Image archives of the present code, built now if they are not there. `base` is the archive of their base."""
    folder = cache / "jobs" / digest(base)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"ffdl-{name}.tar" for name in names]
    missing = [name for name, file in zip(names, files, strict=True) if not file.exists()]
    if missing:
        ffdl = [sys.executable, "-c", "from ffdl.cli import main; main()"]
        command = [*ffdl, "images", "build", *missing, "--base", f"oci-archive:{base}", "--archive", str(folder)]
        env = {**os.environ, "BUILDAH_ISOLATION": "chroot"}  # else it leaves a bridge and its rules behind
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode:
            raise BuildError(f"ffdl images build failed: {done.stderr.strip()[-2000:]}")
    os.utime(folder)
    for old in sorted((cache / "jobs").iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old)
    return files


def digest(base: Path) -> str:
    """Twelve characters that change with whatever goes into the images."""
    seen = hashlib.sha256(base.name.encode())
    with tempfile.TemporaryDirectory() as work:
        write_context(Path(work))
        for path in sorted(Path(work).rglob("*")):
            if path.is_file():
                seen.update(f"{path.relative_to(work)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return seen.hexdigest()[:12]
