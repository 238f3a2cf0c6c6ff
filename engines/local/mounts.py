"""A container's view of the file system: everything of this machine, with the pod's mounts in it.

Runs as the first process of a new mount and PID namespace. Mount points are opened part by part without following
symbolic links, for user code has written to the volumes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator

from . import linux
from .pod import Container, Mount, PodSpec
from .podfiles import PodFiles, under_mount

HOSTS = "/etc/hosts"


class CannotMountError(Exception):
    """A volume that can't be mounted. The text says which, where and why."""

    def __init__(self, mount: Mount, reason: str) -> None:
        super().__init__(f"volume {mount.volume} can't be mounted at {mount.path}: {reason}")


def enter_root(spec: PodSpec, container: Container, files: PodFiles) -> None:
    """Makes the container's file system this process's root. Raises CannotMountError, OSError."""
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    root = str(files.root)
    linux.mount("ffdl", root, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=64m")
    linux.mount(None, root, None, linux.MS_UNBINDABLE)  # else binding the folder it lies in would bring it in again
    targets = _targets(container)
    _populate("/", root, _rebuilt(targets.values()))
    _mount_proc(f"{root}/proc")
    for mount in sorted(container.mounts, key=lambda m: os.path.normpath(m.path).count("/")):
        try:
            _mount_volume(spec, mount, targets[mount.path], files)
        except OSError as error:
            raise CannotMountError(mount, error.strerror or str(error)) from error
    _mount_hosts(spec, files)
    for folder in spec.hidden:
        inside = f"{root}{os.path.realpath(folder)}"
        if os.path.isdir(inside):
            linux.mount("ffdl", inside, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_RDONLY, "mode=700,size=4k")
    linux.mount(None, root, None, linux.MS_PRIVATE)
    os.chdir(root)
    try:
        linux.pivot_root(".", ".")
        linux.unmount(".", linux.MNT_DETACH)
    except OSError:  # the machine's root is the kernel's first, which can't be left
        linux.mount(root, "/", None, linux.MS_MOVE)
        os.chroot(".")
    os.chdir("/")


def _targets(container: Container) -> dict[str, str]:
    """Mount path -> path with this machine's symbolic links resolved, as far as no other mount comes before them."""
    found = {}
    for mount in container.mounts:
        others = [m for m in container.mounts if m.path != mount.path]
        above = under_mount(Container("", [], mounts=others), mount.path)
        below = os.path.relpath(mount.path, above) if above else ""
        found[mount.path] = os.path.join(os.path.realpath(above), below) if above else os.path.realpath(mount.path)
    return found


def _rebuilt(targets: Iterable[str]) -> set[str]:
    """Folders of this machine that get new entries: they are made anew, what is in them bound entry by entry."""
    found = {"/"}
    for target in targets:
        if os.path.lexists(target):
            continue
        folder = os.path.dirname(target)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        while folder != "/":
            found.add(folder)
            folder = os.path.dirname(folder)
    return found


def _populate(source: str, target: str, rebuilt: set[str]) -> None:
    try:
        entries = list(os.scandir(source))
    except PermissionError:
        return
    for entry in entries:
        inside = f"{target}/{entry.name}"
        try:
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), inside)
            elif entry.is_dir(follow_symlinks=False):
                os.mkdir(inside)
                if entry.path in rebuilt:
                    os.chmod(inside, stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode))
                    _populate(entry.path, inside, rebuilt)
                elif entry.path != "/proc":
                    linux.mount(entry.path, inside, None, linux.MS_BIND | linux.MS_REC)
            else:
                os.close(os.open(inside, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
                linux.mount(entry.path, inside, None, linux.MS_BIND)
        except OSError:  # one that can't be shown: gone meanwhile, or a dead network mount
            continue


def _mount_proc(target: str) -> None:
    try:
        linux.mount("proc", target, "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except OSError:  # in a container that hides parts of it the kernel allows no new one
        linux.mount("/proc", target, None, linux.MS_BIND | linux.MS_REC)


def _mount_volume(spec: PodSpec, mount: Mount, target: str, files: PodFiles) -> None:
    volume = spec.volumes[mount.volume]
    read_only = mount.read_only
    base = volume.path
    if volume.kind == "empty":
        base = str(files.volume(mount.volume))
    elif volume.kind == "overlay":
        overlaid = _overlay(base, files.volume(mount.volume))
        base, read_only = overlaid or base, read_only or overlaid is None
    root = str(files.root)
    with opened(base, mount.sub_path, None) as source:
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        with opened(root, target, is_folder) as point:
            linux.mount(_of(source), _of(point), None, linux.MS_BIND | linux.MS_REC)
    if read_only:
        with opened(root, target, is_folder) as mounted:
            linux.make_read_only(_of(mounted))


def _overlay(lower: str, scratch: os.PathLike[str]) -> str | None:
    """Mounts `lower` so that writes go to `scratch`. Returns where; None if kernel or file system don't allow it."""
    parts = {name: os.path.join(scratch, name) for name in ("upper", "work", "merged")}
    for path in parts.values():
        os.makedirs(path, exist_ok=True)
    if os.path.ismount(parts["merged"]):
        return parts["merged"]
    with contextlib.ExitStack() as stack:
        # by descriptor: the options know no way to write a comma in a path
        low, up, work = (stack.enter_context(opened(p, "", None)) for p in (lower, parts["upper"], parts["work"]))
        options = f"lowerdir={_of(low)},upperdir={_of(up)},workdir={_of(work)}"
        for extra in (",userxattr", "") if os.geteuid() else ("",):
            try:
                linux.mount("overlay", parts["merged"], "overlay", 0, options + extra)
            except OSError:
                continue
            return parts["merged"]
    return None


def _mount_hosts(spec: PodSpec, files: PodFiles) -> None:
    """Shows the job's hosts file as /etc/hosts, with a line for the pod's own name if it has none."""
    point = os.path.realpath(HOSTS)
    source = spec.hosts or point
    if not (spec.hosts or spec.hostname) or not os.path.isfile(point):
        return
    with open(source, errors="surrogateescape") as stream:
        text = stream.read()
    known = {name for line in text.splitlines() for name in line.partition("#")[0].split()[1:]}
    name = host_name(spec)
    if name and name not in known:
        own = files.folder / "hosts"
        own.write_text(f"{text.rstrip()}\n{spec.address}\t{name}\n", errors="surrogateescape")
        source = str(own)
    linux.mount(source, f"{files.root}{point}", None, linux.MS_BIND)


def host_name(spec: PodSpec) -> str:
    return spec.hostname[:63]  # as Kubernetes cuts it; the kernel takes one byte more


def _of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


@contextlib.contextmanager
def opened(base: str, below: str, make_folder: bool | None) -> Iterator[int]:
    """A descriptor (path only) of `below` in `base`, reached without symbolic links. Missing folders are made; the last
    part becomes a folder or a file, as `make_folder` says (None: a folder)."""
    flags = os.O_PATH | os.O_CLOEXEC
    current = os.open(base, flags)
    try:
        parts = [part for part in below.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise OSError(0, "'..' in a path", below)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            try:
                deeper = os.open(part, flags | os.O_NOFOLLOW, dir_fd=current)
            except FileNotFoundError:
                if last and make_folder is False:
                    os.close(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=current))
                else:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                deeper = os.open(part, flags | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = deeper
            if stat.S_ISLNK(os.fstat(current).st_mode):
                raise OSError(0, "a symbolic link is in the way", below)
        yield current
    finally:
        os.close(current)
