"""Makes the agent's Python startable in the learner's container: `python -m ffdl.steps.install_agent FOLDER`.

In the agent's image, the Python that runs this copies itself into FOLDER, with its libraries and our code: it needs
nothing of the learner's image. Where the learner's container sees the same file system as ours (the local engine), a
launcher of two lines is enough.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from ..learner import contract

STEPS_PYTHON_ENV = "FFDL_STEPS_PYTHON"  # the Python that has `ffdl.steps`, where it is not the one that runs this


def install(folder: str, python: str) -> str:
    """Makes `python` startable from `folder`, by copying or by a launcher, and returns the path to start."""
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, os.path.basename(contract.AGENT_PYTHON))
    source = _whole(python)
    if source is not None:
        copy(source, folder)
    else:
        # -E -P: neither the user's PYTHONPATH nor the current folder may come before our own modules
        launcher = f'#!/bin/sh\nexec {shlex.quote(python)} -E -P "$@"\n'
        contract.atomic_write(target, os.fsencode(launcher), 0o755)
        os.chmod(target, 0o755)
    return target


def copy(source: str, folder: str) -> None:
    """Copies all of `source` into `folder`, the program last: what can be started is whole."""
    program = os.path.basename(contract.AGENT_PYTHON)
    for name in sorted(os.listdir(source)):
        if name != program:
            shutil.copytree(os.path.join(source, name), os.path.join(folder, name), symlinks=True, dirs_exist_ok=True)
    partial = os.path.join(folder, f"{program}.partial")
    shutil.copy(os.path.join(source, program), partial)
    os.replace(partial, os.path.join(folder, program))


def _whole(python: str) -> str | None:
    """The folder that has all that `python` needs, if it is one of the agent's image."""
    folder = os.path.dirname(python)
    return folder if os.path.exists(os.path.join(folder, "lib", "loader")) else None


def main(arguments: list[str]) -> int:
    """The program."""
    folder = arguments[0] if arguments and arguments[0] != contract.AGENT_DIR else contract.path(contract.AGENT_DIR)
    try:
        install(folder, os.environ.get(STEPS_PYTHON_ENV) or sys.executable)
    except OSError as error:
        print(f"the agent can't be installed: {error}", file=sys.stderr)
        return contract.EXIT_AGAIN
    return contract.EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
