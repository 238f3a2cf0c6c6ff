"""Starting one container of a pod, and what runs in it before the user's program does.

With namespaces: supervisor -> starter (makes the namespaces, ends at once) -> first (PID 1 of them, becomes the
supervisor's own child, waits for main and for orphans; its end is the end of all in the container) -> main.
Without: supervisor -> main. Each says on the channel that it is there; the kernel adds its pid, as the supervisor sees
it. Main executes nothing before the supervisor has noted it, and nobody lives on when the supervisor is gone.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
from dataclasses import dataclass, replace
from typing import NoReturn

from ...learner import contract
from . import linux, mounts, processes, sandbox
from .pod import Container, Mount, PodSpec
from .podfiles import OutputError, PodFiles, read_output, under_mount

FIRST, MAIN, ERROR, ENDED = "first", "main", "error", "ended"  # lines on the channel; the last two followed by JSON
ADOPTED, RUN = b"a", b"r"  # bytes on the go pipe: to first, to main


@dataclass(frozen=True)
class Started:
    """The supervisor's side: `channel` and `log` to read, `go` to write; closing it calls off what has not run yet."""

    channel: socket.socket
    go: int
    log: int
    starter: int


@dataclass(frozen=True)
class _Place:
    """The container's side, and what it needs to know."""

    spec: PodSpec
    container: Container
    files: PodFiles
    channel: socket.socket
    go: int
    log: int

    def say(self, word: str, value: object = None) -> None:
        self.channel.sendall(f"{word} {json.dumps(value)}\n".encode())


def start(spec: PodSpec, container: Container, files: PodFiles, isolation: str, mark: str) -> Started:
    """Forks the container's first process and returns at once."""
    channel, theirs = socket.socketpair()
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    go_read, go_write = os.pipe()
    log_read, log_write = os.pipe()
    supervisor = os.getpid()
    starter = os.fork()
    if starter == 0:
        place = _Place(spec, container, files, theirs, go_read, log_write)
        try:
            keep_only({0, 1, 2, theirs.fileno(), go_read, log_write})
            default_signals()
            linux.die_with_parent(signal.SIGKILL)
            if os.getppid() == supervisor:
                _start(place, isolation, mark)
        except BaseException as error:  # noqa: BLE001 - this is a fork: nothing may leave it
            place.say(ERROR, _reason(error))
        finally:
            os._exit(1)
    theirs.close()
    os.close(go_read)
    os.close(log_write)
    return Started(channel, go_write, log_read, starter)


def keep_only(wanted: set[int]) -> None:
    """Closes every other descriptor of this process."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in wanted:
            try:
                os.close(number)
            except OSError:
                continue  # the one that listed the folder


def default_signals() -> None:
    """Signals as a program expects them at its start: none blocked, none handled, none ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _reason(error: BaseException) -> str:
    if isinstance(error, mounts.CannotMountError):
        return str(error)
    where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
    return f"the container can't be set up: {getattr(error, 'strerror', None) or error!r}{where}"


def _start(place: _Place, isolation: str, mark: str) -> NoReturn:
    env = {**place.container.env, processes.MARK_ENV: mark}
    if isolation == sandbox.NONE:
        container = _linked(place.spec, place.container, place.files, env)
        _main(replace(place, container=container))
    sandbox.separate()
    if os.fork():
        os._exit(0)
    place.say(FIRST)
    linux.set_name("ffdl-init")
    mounts.enter_root(place.spec, place.container, place.files)
    if name := mounts.host_name(place.spec):
        linux.set_hostname(name)
    linux.forgo_mounting()
    _first(replace(place, container=replace(place.container, env=env)))


def _first(place: _Place) -> NoReturn:
    if not os.read(place.go, 1):
        os._exit(1)
    linux.die_with_parent(signal.SIGKILL)  # not before: the death of the starter would have counted
    watch = select.poll()
    watch.register(place.go, 0)
    if watch.poll(0):  # the supervisor died first
        os._exit(1)
    main = os.fork()
    if main == 0:
        _main(place)
    os.close(place.go)
    os.close(place.log)
    ended = status = -1
    while ended != main:
        ended, status = os.waitpid(-1, 0)
    values, problem = read_outputs(place.spec, place.container, "")
    place.say(ENDED, {"status": status, "outputs": values, "problem": problem})
    os._exit(0)


def read_outputs(spec: PodSpec, container: Container, root: str) -> tuple[dict[str, str], str]:
    """The output parameters of the main container, seen from where it ran, and what is wrong with them, if anything."""
    values: dict[str, str] = {}
    problem = ""
    for output in spec.outputs if container.name == spec.main.name else []:
        where = root + output.path if root and under_mount(container, output.path) else output.path
        try:
            value = read_output(output.name, output.path, where)
        except OutputError as error:
            problem = str(error)
            continue
        value = output.default if value is None else value
        if value is None:
            problem = f"output parameter {output.name}: {output.path}: no such file"
        else:
            values[output.name] = value
    return values, problem


def _main(place: _Place) -> NoReturn:
    container = place.container
    try:
        os.setsid()
        place.say(MAIN)
        if not os.read(place.go, 1):
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(place.log, 1)
        os.dup2(place.log, 2)
        try:
            os.makedirs(container.cwd, exist_ok=True)
            os.chdir(container.cwd)
            what = container.argv[0]
            os.execvpe(what, container.argv, container.env)
        except (OSError, ValueError, IndexError) as error:
            reason = getattr(error, "strerror", None) or error
            os.write(2, f"can't run {container.argv!r} in {container.cwd}: {reason}\n".encode(errors="replace"))
            os._exit(contract.EXIT_ARGO)
    finally:
        os._exit(contract.EXIT_ARGO)


def _linked(spec: PodSpec, container: Container, files: PodFiles, env: dict[str, str]) -> Container:
    """Where there are no namespaces: the mounts as symbolic links below a root that the environment names."""
    root = str(files.root)
    for mount in sorted(container.mounts, key=lambda m: os.path.normpath(m.path).count("/")):
        link = root + os.path.normpath(mount.path)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(_source(spec, mount, files), link)
    env[contract.ROOT_ENV] = root
    progress = env.get("ARGO_PROGRESS_FILE")
    if progress and under_mount(container, progress):
        env["ARGO_PROGRESS_FILE"] = root + progress
    argv = list(container.argv)
    if argv and argv[0].startswith("/") and under_mount(container, argv[0]):
        argv[0] = root + argv[0]
    cwd = root + container.cwd if under_mount(container, container.cwd) else container.cwd
    return replace(container, argv=argv, cwd=cwd, env=env)


def _source(spec: PodSpec, mount: Mount, files: PodFiles) -> str:
    volume = spec.volumes[mount.volume]
    base = str(files.volume(mount.volume)) if volume.kind == "empty" else volume.path
    source = os.path.join(base, mount.sub_path) if mount.sub_path else base
    if not os.path.exists(source):
        if not os.path.isdir(base):
            raise mounts.CannotMountError(mount, os.strerror(errno.ENOENT))
        os.makedirs(source)
    return source
