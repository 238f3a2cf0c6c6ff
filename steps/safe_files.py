"""Reading what untrusted code wrote: nothing but regular files beneath a folder, and no link is ever followed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE = 0x04 | 0x08  # RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH
_COMMON = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK  # a fifo must not hold us up


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(dir_fd: int, relative: str) -> int:
    """A descriptor, for reading, of the regular file `relative` beneath the folder open as `dir_fd`.

    Raises OSError: ELOOP for a link anywhere on the way, EINVAL for what is no regular file or no path beneath.
    """
    descriptor = _open(dir_fd, relative, _COMMON)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", relative)
    return descriptor


def walk(root: str, skipped: Callable[[str, str], None] | None = None) -> Iterator[tuple[str, int, int]]:
    """(path relative to `root`, size in bytes, mtime in nanoseconds) of every regular file beneath `root`.

    Sorted within a folder. A `root` that is missing has none. What is no regular file or folder, or can't be read, is
    left out and told to `skipped(relative path, reason)`.
    """
    try:
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                entries = _entries(root_fd, folder)
            except OSError as error:
                if error.errno != errno.ENOENT and skipped:
                    skipped(folder, error.strerror or str(error))
                continue
            below = []
            for name, status in entries:
                relative = f"{folder}/{name}" if folder else name
                if stat.S_ISREG(status.st_mode):
                    yield relative, status.st_size, status.st_mtime_ns
                elif stat.S_ISDIR(status.st_mode):
                    below.append(relative)
                elif skipped:
                    skipped(relative, "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file")
            folders.extend(reversed(below))
    finally:
        os.close(root_fd)


def make_readable(root: str) -> None:
    """`chmod a+rX` on everything of ours beneath `root` that is a file or a folder; what can't be changed is left."""
    with contextlib.suppress(OSError):
        _widen(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
    try:
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        folders = [""]
        while folders:
            folder = folders.pop()
            with contextlib.suppress(OSError):
                for name, status in _entries(root_fd, folder):
                    relative = f"{folder}/{name}" if folder else name
                    is_folder = stat.S_ISDIR(status.st_mode)
                    if is_folder:
                        folders.append(relative)
                    if (is_folder or stat.S_ISREG(status.st_mode)) and _wider(status.st_mode) != status.st_mode:
                        with contextlib.suppress(OSError):
                            _widen(_open(root_fd, relative, _COMMON))
    finally:
        os.close(root_fd)


def _wider(mode: int) -> int:
    return mode | 0o444 | (0o111 if stat.S_ISDIR(mode) or mode & 0o111 else 0)


def _widen(descriptor: int) -> None:
    try:
        mode = os.fstat(descriptor).st_mode
        if (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and _wider(mode) != mode:
            os.fchmod(descriptor, stat.S_IMODE(_wider(mode)))
    finally:
        os.close(descriptor)


def _entries(root_fd: int, folder: str) -> list[tuple[str, os.stat_result]]:
    descriptor = _open(root_fd, folder, _COMMON | os.O_DIRECTORY) if folder else os.dup(root_fd)
    found = []
    try:
        for name in sorted(os.listdir(descriptor)):
            with contextlib.suppress(FileNotFoundError):
                found.append((name, os.stat(name, dir_fd=descriptor, follow_symlinks=False)))
    finally:
        os.close(descriptor)
    return found


def _open(dir_fd: int, relative: str, flags: int) -> int:
    parts = relative.split("/")
    if not relative or "\0" in relative or any(part in ("", ".", "..") for part in parts):
        raise OSError(errno.EINVAL, "not a path beneath the folder", relative)
    try:
        return _openat2(dir_fd, relative, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: what old container runtimes say for ENOSYS
            raise
    return _open_stepwise(dir_fd, parts, flags)


def _openat2(dir_fd: int, relative: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE)
    path = os.fsencode(relative)
    for _ in range(16):
        result = int(_syscall(_OPENAT2, dir_fd, path, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))))
        if result >= 0:
            return result
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something on the way was being renamed
            break
    raise OSError(code, os.strerror(code), relative)


def _open_stepwise(dir_fd: int, parts: list[str], flags: int) -> int:
    held = os.dup(dir_fd)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
            os.close(held)
            held = below
        return os.open(parts[-1], flags, dir_fd=held)
    finally:
        os.close(held)


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
