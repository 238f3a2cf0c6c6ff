"""What is put into a pod's folders before its first container starts: volumes, a script's text, input artifacts."""

from __future__ import annotations

import contextlib
import os
import shutil

from . import artifacts
from .mounts import opened
from .pod import Artifact, PodSpec
from .podfiles import PodFiles, host_places

INPUTS = "_inputs"  # the volume of input artifacts that lie in no volume of the user's
SCRIPT = "_script"
SCRIPT_DIR = "/argo/staging"  # Argo's own
SCRIPT_PATH = f"{SCRIPT_DIR}/script"


class StagingError(Exception):
    """An input that can't be had. The text is for people."""


def prepare(spec: PodSpec, files: PodFiles) -> None:
    """Makes the pod's folders. Raises OSError, StagingError."""
    for name, volume in spec.volumes.items():
        if volume.kind in ("empty", "overlay"):
            folder = files.volume(name)
            folder.mkdir(parents=True, exist_ok=True)
            if volume.kind == "empty":
                folder.chmod(0o777)
            for file, text in volume.files.items():
                (folder / file).write_text(text, encoding="utf-8", errors="surrogateescape")
                (folder / file).chmod(volume.mode)
    files.root.mkdir(exist_ok=True)
    for artifact in spec.inputs:
        _load(spec, files, artifact)


def _load(spec: PodSpec, files: PodFiles, artifact: Artifact) -> None:
    if not artifact.stored and artifact.data is None:
        if artifact.optional:
            return
        raise StagingError(f"required artifact '{artifact.name}' not supplied")
    if artifact.stored and artifact.optional and not os.path.exists(artifact.stored):
        return
    base, below = host_places(spec, files, spec.main, artifact.path)[0]
    try:
        with opened(base, os.path.dirname(below), None) as folder:
            target = f"/proc/self/fd/{folder}/{os.path.basename(below)}"
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(target) if os.path.isdir(target) and not os.path.islink(target) else os.unlink(target)
            if artifact.data is not None:
                with open(target, "x", encoding="utf-8", errors="surrogateescape") as stream:
                    stream.write(artifact.data)
            else:
                artifacts.unpack(artifact.stored, target, artifact.archive)
            if artifact.mode is not None:
                artifacts.set_mode(target, artifact.mode, artifact.recurse)
    except (OSError, artifacts.ArtifactError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StagingError(f"artifact {artifact.name} failed to load: {reason}") from None
