"""What MPI's launchers are told of the learners of a job, so that `mpirun PROGRAM` starts processes in all of them.

Host files in the two forms that there are, and variables for Open MPI (4: ORTE, 5: PRRTE), MPICH's Hydra and Intel's.
They start their daemons by a program of ours that takes the place of ssh: there are no keys and no sshd.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import socket
import struct

from ..learner import contract

_SIOCGIFADDR = 0x8915
HOST_FILE, HYDRA_HOST_FILE, STARTER = "hostfile", "hydra-hostfile", "start"


def host_names(job_id: str, learners: int) -> list[str]:
    """By rank; a learner on its own has no domain."""
    domain = f".{job_id}" if learners > 1 else ""
    return [f"{job_id}-{index}{domain}" for index in range(learners)]


def environment(folder: str, slots: int, interface: str = "") -> dict[str, str]:
    """What makes launchers use what `write` has put into `folder`. `interface` has the address that others reach."""
    hosts, hydra_hosts, starter = (os.path.join(folder, name) for name in (HOST_FILE, HYDRA_HOST_FILE, STARTER))
    reached = {"HYDRA_IFACE": interface, "I_MPI_HYDRA_IFACE": interface} if interface else {}
    return {
        # a pod's user is root unless its image says otherwise
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_orte_default_hostfile": hosts,
        "OMPI_MCA_plm_rsh_agent": starter,
        # pods on one node would all be bound to its first cores
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_prte_default_hostfile": hosts,
        "PRTE_MCA_plm_ssh_agent": starter,
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "HYDRA_HOST_FILE": hydra_hosts,
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": starter,
        "I_MPI_HYDRA_HOST_FILE": hydra_hosts,
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": starter,
        "I_MPI_PERHOST": str(slots),
        **reached,
    }


def interface_with(address: str) -> str:
    """The network interface with the IPv4 `address`, or "": some launchers else give out a name without a domain."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        wanted = socket.inet_aton(address)
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode())
                if fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24] == wanted:
                    return name
    return ""


def write(folder: str, names: list[str], slots: int, python: str) -> None:
    """The host files, and the starter, which `python` runs: an image need not have any. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    starter = f'#!/bin/sh\nexec {shlex.quote(python)} -m ffdl.steps.remote_client "$@"\n'
    for name, text, mode in (
        (HOST_FILE, "".join(f"{host} slots={slots}\n" for host in names), 0o644),
        (HYDRA_HOST_FILE, "".join(f"{host}:{slots}\n" for host in names), 0o644),
        (STARTER, starter, 0o755),
    ):
        contract.atomic_write(os.path.join(folder, name), text.encode(), mode)
