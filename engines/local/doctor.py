"""What this machine offers to jobs of the local engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ..failure import memory_words
from ..finding import NOTE, OK, PROBLEM, Finding

SCARCE = 1 << 30  # bytes
_LOOK = """
import sys, importlib.util
print(sys.version.split()[0], *(name for name in ("numpy", "torch") if importlib.util.find_spec(name)))
"""


def examine(home: Path | None, python: str) -> Iterator[Finding]:
    """Everything that is found. `home` is as for LocalEngine; `python` is the learners'."""
    if sys.platform != "linux":
        yield Finding("machine", PROBLEM, "the local engine needs Linux; use --engine argo with a cluster")
        return
    yield from _machine()
    yield from _isolation()
    yield from _memory()
    yield from _python(python)
    yield from _home(home)


def _machine() -> Iterator[Finding]:
    from ..base import EngineError
    from .leases import MACHINE_ENV, Capacity

    try:
        machine = Capacity.of_this_machine()
    except EngineError as error:
        yield Finding("machine", PROBLEM, str(error))
        return
    said = " (as FFDL_MACHINE says)" if os.environ.get(MACHINE_ENV) else ""
    amounts = f"{machine.cpus:g} CPUs, {memory_words(machine.memory)} of memory and {len(machine.gpus)} GPUs"
    yield Finding("machine", OK, f"jobs may use {amounts}{said}")


def _isolation() -> Iterator[Finding]:
    from . import sandbox

    try:
        found = sandbox.available()
    except (OSError, ValueError) as error:
        yield Finding("isolation", PROBLEM, str(error))
        return
    if found == sandbox.NAMESPACES:
        yield Finding(
            "isolation", OK, "learners get namespaces of their own: /job, /mnt/data and host names are theirs"
        )
    else:
        words = "learners get no namespaces: /job and /mnt/data are other paths here (scripts find them in variables)"
        yield Finding(
            "isolation", NOTE, words, "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000"
        )


def _memory() -> Iterator[Finding]:
    from .cgroup import plan

    group = plan(f"doctor-{os.getpid()}")
    if group is not None and group.create(64 << 20):
        group.remove()
        yield Finding("memory", OK, f"memory limits are kept by the kernel (cgroup v{group.version})")
    else:
        yield Finding(
            "memory", NOTE, "memory limits are kept by looking a few times a second: no cgroup can be made here"
        )


def _python(python: str) -> Iterator[Finding]:
    try:
        done = subprocess.run([python, "-c", _LOOK], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("python", PROBLEM, f"{python} can't be run: {error}", "name a Python with --python")
        return
    version, *has = done.stdout.split() or ["?"]
    if done.returncode:
        words = f"{python} can't be run: {' '.join(done.stderr.split()[-12:])}"
        yield Finding("python", PROBLEM, words, "name a Python with --python")
    elif "numpy" not in has:
        words = (
            f"learners run {python} ({version}), which has no NumPy: scripts that keep checkpoints with ffdl need it"
        )
        yield Finding("python", NOTE, words, f"{python} -m pip install numpy")
    else:
        yield Finding("python", OK, f"learners run {python} ({version}, with {' and '.join(has)})")


def _home(home: Path | None) -> Iterator[Finding]:
    from .state import Home

    folder = Home(home).path
    free = shutil.disk_usage(folder).free
    state = OK if free > SCARCE else NOTE
    yield Finding("state", state, f"jobs are kept in {folder}; {memory_words(free)} are free there")
