"""Builds the programs of the cluster: one folder of `builds/` each, whose build.sh says how.

A build is keyed by what its folder holds, made beside its place and renamed when it is whole: one that was killed
is begun again, with what the Go build cache has of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from .place import BUILDS

NAMES = ("onenode", "coredns", "pause", "debian", "policies", "argo")
UNUSED = 14 * 24 * 3600  # seconds after which the cache forgets what nobody used


class BuildError(Exception):
    """A build that failed; the message ends with the build's own last lines."""


def digest(name: str) -> str:
    """Twelve characters that change with any file of the build's folder."""
    seen = hashlib.sha256()
    for path in sorted((BUILDS / name).rglob("*")):
        if path.is_file():
            seen.update(f"{path.relative_to(BUILDS)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return seen.hexdigest()[:12]


def place(cache: Path, name: str) -> Path:
    """Where the build is, or will be."""
    return cache / "build" / f"{name}-{digest(name)}"


def build(cache: Path, name: str) -> Path:
    """The folder of a build's results, made now if it was not there."""
    done = place(cache, name)
    done.parent.mkdir(parents=True, exist_ok=True)
    with (done.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.is_dir():
            work = done.parent / f".{name}.partial"
            if work.exists():
                shutil.rmtree(work)
            work.mkdir()
            _run(name, work)
            (work / "out").rename(done)
            shutil.rmtree(work)
    return done


def tidy(cache: Path, used: Iterable[Path]) -> None:
    """Note that builds and archives were used now; remove those that nobody used for UNUSED seconds."""
    for path in used:
        os.utime(path)
    for path in [*cache.glob("build/[!.]*"), *cache.glob("images/[!.]*"), *cache.glob("manifests/*")]:
        if time.time() - path.stat().st_mtime > UNUSED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _run(name: str, work: Path) -> None:
    shutil.copytree(BUILDS / name, work / "source")
    (work / "out").mkdir(mode=0o755)
    env = {**os.environ, "OUT": str(work / "out"), "GOWORK": "off"}
    with (work / "log").open("w+") as log:
        done = subprocess.run(["sh", "-eu", "build.sh"], cwd=work / "source", env=env, stdout=log, stderr=log)
        log.seek(0)
        if done.returncode:
            raise BuildError(f"building {name} failed, see {log.name}: …{log.read()[-2000:]}")
