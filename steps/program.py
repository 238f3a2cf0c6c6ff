"""What the pod of a member runs: the user's command, or a program of ours around it or in its place."""

from __future__ import annotations

import shlex
import sys

from ..learner import contract

_SERVER = f"exec {shlex.quote(sys.executable)} -m ffdl.learner.serving"
# each process runs the whole command, with the environment of its own pod
_COMMAND = 'eval "${TRAINING_COMMAND:?it is too long for several processes; put it into a file}"'


def program(spec: contract.JobSpec, role: str, index: int, python: str) -> str:
    """The text that the shell of member `index` runs. `python` starts programs of ours in the learner's image."""
    if role == contract.PARAMETER_SERVER and not spec.own_servers:
        return _SERVER
    if role == contract.PARAMETER_SERVER and spec.mode == contract.MXNET and index == 0:
        # its servers and workers find each other by a scheduler, which is one more process of the same command
        return f'exec {shlex.quote(python)} -m ffdl.steps.processes server,scheduler "$0" -c {shlex.quote(_COMMAND)}'
    if spec.distribution == contract.MPI:
        if index:
            return f"exec {shlex.quote(python)} -m ffdl.steps.remote_server"
        if spec.processes:
            return f'exec mpirun -np {spec.learners * spec.slots} "$0" -c {shlex.quote(_COMMAND)}'
    elif spec.started > 1:
        return f'exec {shlex.quote(python)} -m ffdl.steps.processes {spec.started} "$0" -c {shlex.quote(_COMMAND)}'
    return spec.command


def no_worlds(spec: contract.JobSpec) -> str:
    """Why a script of this job can't use `learner.run`; nothing where it can."""
    if spec.distribution == contract.MPI:
        return "learner.run is not for distribution.kind mpi, where MPI brings processes together; use learner.session"
    if spec.own_servers:
        return f"learner.run is not for distribution.mode {spec.mode}; use learner.session"
    if spec.started > 1:
        return "learner.run is for one process in each learner; write processes: one, or use learner.session"
    return ""


def in_step(spec: contract.JobSpec) -> list[str]:
    """Where in CHECKPOINT_DIR the members lie that go on from one step, which each of them must have."""
    if not spec.lockstep or no_worlds(spec):
        return []
    learners = [spec.checkpoint_folder(contract.LEARNER, index) for index in range(spec.learners)]
    return learners + [spec.checkpoint_folder(contract.PARAMETER_SERVER, index) for index in range(spec.servers)]
