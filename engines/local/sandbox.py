"""What keeps a pod together: namespaces of its own where the kernel gives them, else `none`."""

from __future__ import annotations

import errno
import functools
import os
import signal
from typing import NoReturn

from . import linux

SWITCH_ENV = "FFDL_ISOLATION"  # auto (the default), namespaces, none
NAMESPACES, NONE = "namespaces", "none"
_NOT_NOW = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # says nothing about what the kernel gives


def available() -> str:
    """`namespaces` or `none`: what pods get here. Tried out once a process, unless SWITCH_ENV decides.

    Raises ValueError (SWITCH_ENV), OSError (no process or memory to try it with).
    """
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
    """Whether a child can have the namespaces, mount in them and start a process there. Raises OSError."""
    while True:
        child = os.fork()
        if child == 0:
            _try()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL:  # by which somebody ended it before it knew
            break
    if code in _NOT_NOW:
        why = f"whether this kernel gives pods namespaces could not be tried: {os.strerror(code)}"
        raise OSError(f"{why}; end something, or say it by {SWITCH_ENV}={NAMESPACES}")
    return code == 0


def _try() -> NoReturn:
    """Exits with 0 if it can, else with the error's number."""
    code = errno.EPERM
    try:
        separate()
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("ffdl", "/", "tmpfs", 0, "size=4k")
        first = os.fork()
        if first == 0:
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        if code == -signal.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
    except OSError as error:
        code = error.errno or code
    finally:
        os._exit(code)  # this is a fork: nothing may leave it
