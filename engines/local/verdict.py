"""How a pod has ended, out of how its containers have: in the words of Kubernetes and Argo. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .outputs import LIMIT
from .pod import ContainerEnd, PodSpec

DELETED = "pod deleted"
OVERDUE = "Pod was active on the node longer than the specified deadline"
NOT_RUN = 64  # the exit code of Argo's executor itself, for a command that it could not run
TERMINATED = 143
_ENDED_BY_ARGO = (137, TERMINATED)  # exit codes of sidecars that mean nothing


def verdict(spec: PodSpec, ends: Mapping[str, ContainerEnd], problem: str) -> tuple[str, str]:
    """Phase and message of a pod all of whose containers have ended; `problem` is what is wrong with its outputs.

    Argo looks at main containers first, in the order of their names, then at its own work, then at sidecars.
    """
    for name in sorted(each.name for each in spec.containers):
        if ends[name].exit_code != 0:
            return "Failed", message(name, ends[name])
    if problem:
        return "Error", message("wait", ContainerEnd(NOT_RUN, detail=problem))
    for name in sorted(each.name for each in spec.sidecars):
        if ends[name].exit_code not in (0, *_ENDED_BY_ARGO):
            return "Failed", message(name, ends[name])
    return "Succeeded", ""


def message(name: str, end: ContainerEnd) -> str:
    words = f"{name}: {end.reason} (exit code {end.exit_code})"
    return f"{words}: {end.detail}" if end.detail else words


def result(said: bytes) -> str:
    """What a main container wrote, as a result: without the last newline, and of what is too long the end."""
    return said.removesuffix(b"\n")[-LIMIT:].decode(errors="replace")
