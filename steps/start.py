"""The start of a member's command in a world: what has to lie there first, its environment, and itself."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from ..learner import contract
from . import mpi
from .channel import Message
from .command import Command
from .environment import Place, given, learner_environment
from .identity import Identity
from .library import chosen_python, copy_library
from .program import program


def start(identity: Identity, world: Message, port: int, agent_socket: str, sink: Callable[[bytes], None]) -> Command:
    """Raises OSError. `port` is this member's own, `sink` is given what the command writes."""
    meeting, serving = (
        [(str(host), int(port)) for host, port in world.get(name) or ()] for name in ("meeting", "serving")
    )
    place = Place(
        identity.index,
        int(world.get("rank", identity.index)),
        int(world.get("size", identity.spec.learners)),
        *_master(identity, world, port),
        socket=agent_socket,
        library=copy_library(identity.run_dir),
        role=identity.role,
        meeting=meeting,
        serving=serving,
        mpi=_mpi(identity),
    )
    environment = learner_environment(identity.spec, identity.job_id, place, given(), identity.secret)
    if python := os.environ.get(contract.PYTHON_ENV):
        environment["PATH"] = chosen_python(identity.run_dir, python, environment.get("PATH", ""))
    for name in ("RESULT_DIR", "CHECKPOINT_DIR"):
        os.makedirs(environment[name], exist_ok=True)
    rendezvous = os.path.join(contract.path(contract.JOB_DIR), identity.job_id)
    with contextlib.suppress(OSError), open(rendezvous, "ab"):
        pass
    text = program(identity.spec, identity.role, identity.index, contract.path(contract.AGENT_PYTHON))
    return Command(text, environment, environment["MODEL_DIR"], identity.run_dir, sink)


def _mpi(identity: Identity) -> dict[str, str]:
    """What MPI's launchers are told, once it lies there. Raises OSError."""
    if identity.spec.distribution != contract.MPI:
        return {}
    folder = os.path.join(identity.run_dir, contract.MPI)
    names = mpi.host_names(identity.job_id, identity.spec.learners)
    mpi.write(folder, names, identity.spec.slots, contract.path(contract.AGENT_PYTHON))
    return mpi.environment(folder, identity.spec.slots, mpi.interface_with(identity.address))


def _master(identity: Identity, world: Message, port: int) -> tuple[str, int]:
    """Where the first learner is: its name if that resolves, else the address it joined with."""
    master = world.get("master") or {}
    name = f"{identity.job_id}-{master.get('index', 0)}.{identity.job_id}"
    port = master.get("port") or port
    with contextlib.suppress(OSError, UnicodeError):
        socket.getaddrinfo(name, port)
        return name, port
    return str(master.get("address") or "127.0.0.1"), port
