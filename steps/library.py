"""What a learner's command needs of us beside the agent: the learner library, and a port to meet the others at."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import shutil
import socket

import ffdl

from ..learner import contract


def chosen_python(run_dir: str, python: str, path: str) -> str:
    """`path` with a folder before it in which `python` and `python3` are `python`, if they would be others.

    /usr/bin has no `python` on Debian, and an environment's Python found through a link would lose its packages.
    """
    beside = os.path.dirname(python)
    if all(shutil.which(name, path=path) == os.path.join(beside, name) for name in ("python", "python3")):
        return path
    folder = os.path.join(run_dir, "bin")
    os.makedirs(folder, exist_ok=True)
    for name in ("python", "python3"):
        script = f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n'
        contract.atomic_write(os.path.join(folder, name), script.encode(), 0o755)
    return f"{folder}:{path}"


def copy_library(run_dir: str) -> str:
    """A folder with `ffdl.learner` and nothing else of ours, for the command's PYTHONPATH."""
    folder = os.path.join(run_dir, "lib")
    package = os.path.join(folder, "ffdl")
    if not os.path.isdir(package):
        partial = f"{package}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(os.path.dirname(contract.__file__), os.path.join(partial, "learner"), ignore=ignored)
        shutil.copyfile(str(ffdl.__file__), os.path.join(partial, "__init__.py"))
        os.rename(partial, package)
    return folder


def door(address: str) -> socket.socket:
    """Where the other learners of a world find this one, whichever process of its command asks for it."""
    return socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)


def free_port() -> int:
    """A port for the learners' own rendezvous, free now and outside the range that the kernel deals from."""
    for _ in range(100):
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.bind(("", port))
            return port
    return 29500
