"""What keeps a pod together: namespaces of its own where the kernel gives them, else `none`."""

from __future__ import annotations

import errno
import functools
import os

from . import linux

SWITCH_ENV = "FFDL_ISOLATION"  # auto (the default), namespaces, none
NAMESPACES, NONE = "namespaces", "none"


def available() -> str:
    """`namespaces` or `none`: what pods get here. Tried out once a process, unless SWITCH_ENV decides."""
    wanted = os.environ.get(SWITCH_ENV) or "auto"
    if wanted not in ("auto", NAMESPACES, NONE):
        raise ValueError(f"{SWITCH_ENV} is {wanted!r}; it may be auto, {NAMESPACES} or {NONE}")
    if wanted == "auto":
        return NAMESPACES if _tried() else NONE
    return wanted


def separate() -> None:
    """Gives this process a mount namespace and its children a PID namespace; a user namespace too where that needs one.

    The caller keeps its own user and group ids. Raises OSError.
    """
    flags = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWUTS
    if os.geteuid() == 0:
        try:
            return linux.unshare(flags)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
    user, group = os.geteuid(), os.getegid()
    linux.unshare(flags | linux.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as stream:
            stream.write(text)
    return None


@functools.cache
def _tried() -> bool:
    """Whether a child can have the namespaces, mount in them and start a process there."""
    child = os.fork()
    if child == 0:
        try:
            separate()
            linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
            linux.mount("ffdl", "/", "tmpfs", 0, "size=4k")
            first = os.fork()
            os._exit(0 if first == 0 else os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
        except BaseException:  # noqa: BLE001 - this is a fork: nothing may leave it
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
