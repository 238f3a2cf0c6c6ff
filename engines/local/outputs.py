"""What is left of a container once it has ended: output parameters, artifacts and the last of what it wrote.

Read where the container ran, by its first process, after everything else in it has been killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import artifacts
from .pod import Artifact, Container, Output, PodSpec
from .podfiles import PodFiles, open_regular, under_mount
from .staging import INPUTS

LIMIT = 256 << 10  # bytes of a parameter or a result, Argo's own
PLACE = "/argo/outputs"  # where packed artifacts are left, in the container
VOLUME = "_outputs"  # no user's volume has such a name
_PARAMETERS, _ARTIFACTS, _MOUNTED = "/var/run/argo/outputs/parameters", "/var/run/argo/outputs/artifacts", "/mainctrfs"


@dataclass(frozen=True)
class Outputs:
    """`parameters` by name; names of the `artifacts` that are packed; `problem`: what Argo's executor would say."""

    parameters: dict[str, str] = field(default_factory=dict)
    artifacts: list[str] = field(default_factory=list)
    problem: str = ""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outputs:
        return cls(**values)


def wanted(spec: PodSpec, container: Container) -> bool:
    """Whether the container has outputs to be collected: only the main one has."""
    return bool(spec.outputs or spec.artifacts) and container.name == spec.main.name


def collect(spec: PodSpec, container: Container, root: str, place: str) -> Outputs:
    """The outputs of an ended container, its paths below `root`; its artifacts are packed into the folder `place`."""
    parameters: dict[str, str] = {}
    problem = ""
    for output in spec.outputs:
        try:
            parameters[output.name] = _parameter(container, output, _where(container, output.path, root))
        except _MissingError as missing:
            problem = str(missing)
            break  # as Argo: those after it have no value
    packed, problems = [], ""
    for number, artifact in enumerate(spec.artifacts):
        try:
            if _pack(container, artifact, _where(container, artifact.path, root), os.path.join(place, str(number))):
                packed.append(artifact.name)
        except _MissingError as missing:
            problems += f"{missing}; "
    return Outputs(parameters, packed, problem or problems)


def store(spec: PodSpec, files: PodFiles, packed: list[str]) -> None:
    """Moves packed artifacts to where they are kept. Raises OSError."""
    for number, artifact in enumerate(spec.artifacts):
        if artifact.name not in packed:
            continue
        source = files.volume(VOLUME) / str(number)
        os.makedirs(os.path.dirname(artifact.stored), exist_ok=True)
        if os.path.isdir(artifact.stored):
            shutil.rmtree(artifact.stored)
        if source.is_dir() and os.path.exists(artifact.stored):
            os.unlink(artifact.stored)
        os.replace(source, artifact.stored)


class _MissingError(Exception):
    """An output that isn't there. The text is Argo's."""


def _where(container: Container, path: str, root: str) -> str:
    return root + path if root and under_mount(container, path) else path


def _parameter(container: Container, output: Output, where: str) -> str:
    try:
        with open(open_regular(where, follow=True), "rb") as stream:
            data = stream.read(LIMIT + 1)
    except OSError as error:
        if output.default is not None and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return output.default
        raise _MissingError(_reason(container, _PARAMETERS, output.path, error)) from None
    if len(data) > LIMIT:
        raise _MissingError(f"output parameter {output.name}: {output.path} has more than {LIMIT >> 10} KiB")
    return data.decode(errors="replace").removesuffix("\n")  # one, as Argo does


def _pack(container: Container, artifact: Artifact, where: str, target: str) -> bool:
    with contextlib.suppress(OSError):  # what user code may have put there
        shutil.rmtree(target) if Path(target).is_dir() else os.unlink(target)
    try:
        artifacts.pack(where, target, artifact.archive, artifact.level)
    except artifacts.ArtifactError as error:
        raise _MissingError(str(error)) from None
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
        if gone and artifact.optional:
            return False
        name = artifact.path.rstrip("/") + ".tgz"
        raise _MissingError(_reason(container, _ARTIFACTS, name if gone else artifact.path, error)) from None
    return True


def _reason(container: Container, folder: str, path: str, error: OSError) -> str:
    """As Go words it, of the place where Argo's executor would look."""
    place = os.path.normpath((_MOUNTED if _mounted(container, path) else folder) + "/" + path)
    if error.errno == 0:
        return f"{path} is {error.strerror}"
    return f"open {place}: {os.strerror(error.errno or errno.EIO).lower()}"


def _mounted(container: Container, path: str) -> bool:
    """Whether the path is in a volume of the user's, or an input artifact."""
    top = under_mount(container, path)
    volumes = [mount.volume for mount in container.mounts if os.path.normpath(mount.path) == top]
    return any(not volume.startswith("_") or volume == INPUTS for volume in volumes)
