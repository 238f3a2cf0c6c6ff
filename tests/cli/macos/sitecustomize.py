"""A Python as macOS has it: its folder in PYTHONPATH takes from every process what only Linux offers."""

import ctypes
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
import time
import types

LINUX = {
    os: """
        copy_file_range eventfd eventfd_read eventfd_write fdatasync getrandom getresgid getresuid getxattr listxattr
        memfd_create pidfd_open pipe2 posix_fadvise posix_fallocate removexattr sched_getaffinity sched_getparam
        sched_getscheduler sched_setaffinity sched_setparam sched_setscheduler setns setresgid setresuid setxattr splice
        unshare waitid EFD_CLOEXEC EFD_NONBLOCK MFD_ALLOW_SEALING MFD_CLOEXEC O_DIRECT O_NOATIME O_PATH O_TMPFILE
        P_PIDFD SCHED_BATCH SCHED_IDLE
    """,
    select: "epoll EPOLLERR EPOLLET EPOLLHUP EPOLLIN EPOLLONESHOT EPOLLOUT EPOLLPRI EPOLLRDHUP EPOLL_CLOEXEC POLLRDHUP",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGCLD SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT",
    socket: """
        AF_ALG AF_NETLINK AF_PACKET AF_VSOCK MSG_CMSG_CLOEXEC MSG_MORE SCM_CREDENTIALS SOCK_CLOEXEC SOCK_NONBLOCK
        SO_BINDTODEVICE SO_DOMAIN SO_MARK SO_PASSCRED SO_PEERCRED SO_PRIORITY SO_PROTOCOL TCP_CONGESTION TCP_CORK
        TCP_DEFER_ACCEPT TCP_INFO TCP_KEEPIDLE TCP_QUICKACK TCP_USER_TIMEOUT
    """,
    fcntl: """
        F_ADD_SEALS F_GETPIPE_SZ F_GET_SEALS F_NOTIFY F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SEAL_GROW F_SEAL_SEAL
        F_SEAL_SHRINK F_SEAL_WRITE F_SETPIPE_SZ F_SETSIG
    """,
    mmap: "MADV_DODUMP MADV_DONTDUMP MADV_DONTFORK MADV_HUGEPAGE MADV_REMOVE MAP_POPULATE MAP_STACK",
    resource: "prlimit RLIMIT_SIGPENDING RUSAGE_THREAD",
    time: "CLOCK_BOOTTIME CLOCK_TAI",
}
IN_C = """
    clone close_range eventfd fanotify_init inotify_add_watch inotify_init1 inotify_rm_watch memfd_create mount
    mount_setattr move_mount open_tree pidfd_getfd pidfd_open pivot_root prctl process_vm_readv process_vm_writev setns
    signalfd timerfd_create umount umount2 unshare
"""


def look_up(library: ctypes.CDLL, name: str) -> object:
    if name in IN_C.split():
        raise AttributeError(f"{name}: symbol not found")
    return found_in(library, name)


sysconfig.get_config_vars()  # kept from here on: they are read from a file with the platform in its name
found_in = ctypes.CDLL.__getattr__
ctypes.CDLL.__getattr__ = look_up  # type: ignore[assignment, method-assign]
for module, names in LINUX.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "darwin"
# the standard library's own way to a proxy's address there
proxies = types.ModuleType("_scproxy")
proxies.__dict__.update(_get_proxy_settings=dict, _get_proxies=dict)
sys.modules["_scproxy"] = proxies
