"""The few calls of Linux that Python 3.11 has no name for. All raise OSError."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x04000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 0x20, 0x1000, 0x2000, 0x4000
MS_UNBINDABLE, MS_PRIVATE = 1 << 17, 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 15, 24, 36
_CAP_SYS_ADMIN = 21
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 0x1

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object, path: str | None = None) -> None:
    if getattr(_libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def _long(value: int) -> ctypes.c_ulong:
    return ctypes.c_ulong(value)


def unshare(flags: int) -> None:
    _call("unshare", ctypes.c_int(flags))


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", texts[0], texts[1], texts[2], _long(flags), texts[3], path=target)


def unmount(target: str, flags: int = 0) -> None:
    _call("umount2", os.fsencode(target), ctypes.c_int(flags), path=target)


def pivot_root(new: str, old: str) -> None:
    _call("pivot_root", os.fsencode(new), os.fsencode(old), path=new)


def make_read_only(target: str) -> None:
    """Makes the mount at `target` and all below it read-only (before Linux 5.12: it alone)."""

    class Attributes(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]

    wanted = Attributes(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    arguments = (ctypes.c_int(_AT_FDCWD), os.fsencode(target), ctypes.c_uint(_AT_RECURSIVE), ctypes.byref(wanted))
    try:
        _call("syscall", ctypes.c_long(_SYS_MOUNT_SETATTR), *arguments, ctypes.c_size_t(ctypes.sizeof(wanted)))
    except OSError:
        kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)  # a user namespace may not clear them
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def join_namespaces(pid: int, kinds: Iterable[str]) -> None:
    """Joins those namespaces of a process that are not this one's own; a PID namespace is this one's children's."""
    theirs = [f"/proc/{pid}/ns/{kind}" for kind in kinds]
    others = [path for path in theirs if os.readlink(path) != os.readlink(path.replace(str(pid), "self"))]
    descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in others]  # while /proc is still our own
    for descriptor in descriptors:
        _call("setns", ctypes.c_int(descriptor), ctypes.c_int(0))
        os.close(descriptor)


def set_hostname(name: str) -> None:
    encoded = os.fsencode(name)
    _call("sethostname", encoded, ctypes.c_size_t(len(encoded)))


def set_name(name: str) -> None:
    """Names this process, as `ps -o comm` and /proc/PID/comm show it (15 bytes at most)."""
    _call("prctl", _PR_SET_NAME, os.fsencode(name), _long(0), _long(0), _long(0))


def die_with_parent(signal_number: int) -> None:
    """Has the kernel send `signal_number` to this process when its present parent ends."""
    _call("prctl", _PR_SET_PDEATHSIG, _long(signal_number), _long(0), _long(0), _long(0))


def become_subreaper() -> None:
    """Orphans among this process's descendants become its own children from now on."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, _long(1), _long(0), _long(0), _long(0))


def forgo_mounting() -> None:
    """Takes CAP_SYS_ADMIN from whatever this process executes, root or not."""
    _call("prctl", _PR_CAPBSET_DROP, _long(_CAP_SYS_ADMIN), _long(0), _long(0), _long(0))
