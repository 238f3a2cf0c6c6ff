"""Makes the agent's Python startable in the learner's container: `python -m ffdl.steps.install_agent FOLDER`.

Where the learner's container sees the same file system as ours (the local engine), a launcher of two lines is enough.
"""

from __future__ import annotations

import os
import shlex
import sys

from ..learner import contract

STEPS_PYTHON_ENV = "FFDL_STEPS_PYTHON"  # the Python that has `ffdl.steps`, where it is not the one that runs this


def install(folder: str, python: str) -> str:
    """Writes a launcher of `python` into `folder` and returns its path."""
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, os.path.basename(contract.AGENT_PYTHON))
    # -E -P: neither the user's PYTHONPATH nor the current folder may come before our own modules
    launcher = f'#!/bin/sh\nexec {shlex.quote(python)} -E -P "$@"\n'
    contract.atomic_write(target, os.fsencode(launcher), 0o755)
    os.chmod(target, 0o755)
    return target


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
