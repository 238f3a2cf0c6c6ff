"""The folder of a pod: what its supervisor keeps in it. And reading files of user code without being led astray.

pod.json      what to run                      NAME.log, init-NAME.log  output, a time before each line
lock          held by the living supervisor    volumes/NAME/            `empty` volumes, scratch of `overlay` ones
started       a supervisor took it; for ever   root/                    where containers' roots are put together
state.json    the containers that run now      terminate                it shall end
result.json   how it ended; written last       supervisor.log           the supervisor's own troubles
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .pod import Container, PodObservation, PodSpec

_TAIL = 4096


class PodFiles:
    """Names and formats of the files above."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = folder / "lock"
        self.started = folder / "started"
        self.state = folder / "state.json"
        self.terminate = folder / "terminate"
        self.result = folder / "result.json"
        self.root = folder / "root"
        self.supervisor_log = folder / "supervisor.log"

    def spec(self) -> PodSpec:
        return PodSpec.from_json((self.folder / "pod.json").read_text())

    def known_spec(self) -> PodSpec | None:
        """None if it isn't there, or is as a power cut left it."""
        try:
            return self.spec()
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def write_spec(self, spec: PodSpec) -> None:
        """Need not survive a power cut: one that was not run yet is asked for again, one that was is lost."""
        self._replace(self.folder / "pod.json", spec.to_json())

    def log(self, container: str, init: bool) -> Path:
        return self.folder / (f"init-{container}.log" if init else f"{container}.log")

    def volume(self, name: str) -> Path:
        return self.folder / "volumes" / name

    def links(self, container: str) -> Path:
        """Where there are no namespaces, the folder below which a container finds its mounts."""
        return self.root / container

    def open_scratch(self) -> None:
        """Overlayfs leaves folders that not even their owner can read, so that nobody could delete them."""
        for folder in (self.folder / "volumes").glob("*/work/work"):
            with contextlib.suppress(OSError):
                folder.chmod(0o700)

    def write_durably(self, path: Path, values: dict[str, Any]) -> None:
        """Makes a new file, which survives a power cut once this returns. Until then it may be seen empty."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(json.dumps(values).encode())
            stream.flush()
            os.fsync(descriptor)

    def write(self, path: Path, values: dict[str, Any]) -> None:
        """Whole or not at all to a reader; what it says matters only while the machine is up."""
        self._replace(path, json.dumps(values))

    def _replace(self, path: Path, text: str) -> None:
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as stream:
            stream.write(text)
        os.replace(temporary, path)

    def read(self, path: Path) -> dict[str, Any] | None:
        """None if it isn't there, or is as a power cut leaves what was not written durably."""
        try:
            values = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return values if isinstance(values, dict) else None

    def write_result(self, result: PodObservation) -> None:
        """Need not survive a power cut: a pod without one counts as lost, as after a crash of a node."""
        self.write(self.result, asdict(result))

    def read_result(self) -> PodObservation | None:
        values = self.read(self.result)
        return None if values is None else PodObservation.from_dict(values)

    def take_lock(self) -> int | None:
        """A descriptor that holds the pod's lock until it (and every copy of it) is closed; None if another does."""
        descriptor = os.open(self.lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def under_mount(container: Container, path: str) -> str | None:
    """The deepest mount of the container that `path` lies in (or is), None if none."""
    normal = os.path.normpath(path)
    mounts = [os.path.normpath(mount.path) for mount in container.mounts]
    return max((m for m in mounts if normal == m or normal.startswith(m.rstrip("/") + "/")), key=len, default=None)


def host_places(spec: PodSpec, files: PodFiles, container: Container, path: str) -> list[tuple[str, str]]:
    """Where a file at `path` in the container is on this machine: (trusted folder, path below it), best first."""
    top = under_mount(container, path)
    if top is None:
        return [("/", path.lstrip("/"))]
    mount = next(m for m in container.mounts if os.path.normpath(m.path) == top)
    volume = spec.volumes[mount.volume]
    below = os.path.normpath(os.path.join(mount.sub_path, os.path.relpath(path, top)))
    if volume.kind == "empty":
        return [(str(files.volume(mount.volume)), below)]
    upper = [(str(files.volume(mount.volume) / "upper"), below)] if volume.kind == "overlay" else []
    return [*upper, (volume.path, below)]


def open_beneath(base: str, below: str) -> int:
    """Opens a regular file to read, following no symbolic link on the way from `base`. Raises OSError."""
    folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *parents, name = [part for part in below.split("/") if part not in ("", ".")]
        for part in parents:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = deeper
        return open_regular(name, folder)
    except ValueError:
        raise IsADirectoryError(base) from None
    finally:
        os.close(folder)


def open_regular(path: str, folder: int | None = None, follow: bool = False) -> int:
    """Opens a regular file to read; the last part of `path` may not be a symbolic link, unless `follow`.

    Raises OSError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(0, "not a regular file", path)


def read_progress(spec: PodSpec, files: PodFiles) -> str:
    """The last valid `N/M` that main has written to its progress file, '' if none."""
    path = spec.main.env.get("ARGO_PROGRESS_FILE")
    for base, below in host_places(spec, files, spec.main, path) if path else []:
        try:
            descriptor = open_beneath(base, below)
        except OSError:
            continue
        try:
            size = os.fstat(descriptor).st_size
            text = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
        finally:
            os.close(descriptor)
        return last_progress(text)
    return ""


def last_progress(text: bytes) -> str:
    for line in reversed(text.splitlines()):
        done, slash, of = line.strip().partition(b"/")
        if slash and done.isdigit() and of.isdigit() and len(line) < 40 and int(done) <= int(of) > 0:
            return f"{int(done)}/{int(of)}"
    return ""
