"""Starting one container of a pod, and what runs in it before and after the user's program does.

With namespaces: supervisor -> starter (makes the namespaces, ends at once) -> first (PID 1 of them, becomes the
supervisor's own child, waits for main and for orphans; its end is the end of all in the container) -> main.
Without: supervisor -> main. Each says on the channel that it is there; the kernel adds its pid, as the supervisor sees
it. Main executes nothing before the supervisor has noted it and first will die with the supervisor, and nobody lives on
when that is gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

from ...learner import contract
from . import linux, mounts, outputs, processes, sandbox
from .pod import Container, Mount, PodSpec
from .podfiles import PodFiles, under_mount
from .staging import SCRIPT_PATH

# lines on the channel; the last three are followed by JSON
FIRST, GUARDED, MAIN, ERROR, MISSING, ENDED = "first", "guarded", "main", "error", "missing", "ended"
EVERY_SIGNAL = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
OF_SUPERVISOR = (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)  # which has put all others back to their defaults


@dataclass(frozen=True)
class Started:
    """The supervisor's side: `channel`, `output` and `errors` to read, `adopt` and `go` to write to first and main;
    closing them calls off what has not run yet. `errors` is None where both go into one pipe, which keeps the order.
    """

    channel: socket.socket
    adopt: int
    go: int
    output: int
    errors: int | None
    starter: int


@dataclass(frozen=True)
class _Place:
    """The container's side, and what it needs to know."""

    spec: PodSpec
    container: Container
    files: PodFiles
    channel: socket.socket
    adopt: int
    go: int
    output: int
    errors: int

    def say(self, word: str, value: object = None) -> None:
        self.channel.sendall(f"{word} {json.dumps(value)}\n".encode())


def start(
    spec: PodSpec, container: Container, files: PodFiles, isolation: str, mark: str, apart: bool = False
) -> Started:
    """Forks the container's first process and returns at once. `apart`: standard output and error have a pipe each."""
    channel, theirs = socket.socketpair()
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    adopt_read, adopt_write = os.pipe()
    go_read, go_write = os.pipe()
    output, output_write = os.pipe()
    errors, errors_write = os.pipe() if apart else (None, output_write)
    supervisor = os.getpid()
    starter = os.fork()
    if starter == 0:
        place = _Place(spec, container, files, theirs, adopt_read, go_read, output_write, errors_write)
        try:
            keep_only({0, 1, 2, theirs.fileno(), adopt_read, go_read, output_write, errors_write})
            default_signals(OF_SUPERVISOR)
            linux.die_with_parent(signal.SIGKILL)
            if os.getppid() == supervisor:
                _start(place, isolation, mark)
        except BaseException as error:  # noqa: BLE001 - this is a fork: nothing may leave it
            place.say(ERROR, _reason(error))
        finally:
            os._exit(1)
    theirs.close()
    for descriptor in {adopt_read, go_read, output_write, errors_write}:
        os.close(descriptor)
    return Started(channel, adopt_write, go_write, output, errors, starter)


def keep_only(wanted: set[int]) -> None:
    """Closes every other descriptor of this process."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in wanted:
            try:
                os.close(number)
            except OSError:
                continue  # the one that listed the folder


def default_signals(numbers: Iterable[int] = EVERY_SIGNAL) -> None:
    """Signals as a program expects them at its start: none blocked, none of `numbers` handled or ignored."""
    signal.set_wakeup_fd(-1)
    for number in numbers:
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
    main = os.fork()
    if main == 0:
        _main(place)
    for descriptor in {place.go, place.output, place.errors}:
        os.close(descriptor)
    if not os.read(place.adopt, 1):
        os._exit(1)
    linux.die_with_parent(signal.SIGKILL)  # not before: the death of the starter would have counted
    watch = select.poll()
    watch.register(place.adopt, 0)
    if watch.poll(0):  # the supervisor died first
        os._exit(1)
    place.say(GUARDED)
    ended = status = -1
    while ended != main:
        ended, status = os.waitpid(-1, 0)
    found = outputs.Outputs()
    if outputs.wanted(place.spec, place.container):
        _end_others()
        found = outputs.collect(place.spec, place.container, "", outputs.PLACE)
    place.say(ENDED, {"status": status, "outputs": asdict(found)})
    os._exit(0)


def _end_others() -> None:
    """Nothing changes any more while what main has left is read."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _main(place: _Place) -> NoReturn:
    container = place.container
    try:
        os.close(place.adopt)
        os.setsid()
        place.say(MAIN)
        if not os.read(place.go, 1):
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(place.output, 1)
        os.dup2(place.errors, 2)
        try:
            os.makedirs(container.cwd, exist_ok=True)
            os.chdir(container.cwd)
            os.execvpe(container.argv[0], container.argv, container.env)
        except (OSError, ValueError, IndexError) as error:
            reason = getattr(error, "strerror", None) or error
            os.write(2, f"can't run {container.argv!r} in {container.cwd}: {reason}\n".encode(errors="replace"))
            place.say(MISSING, _not_run(container, error))
            os._exit(contract.EXIT_ARGO)
    finally:
        os._exit(contract.EXIT_ARGO)


def _not_run(container: Container, error: Exception) -> str:
    """Why the command could not be run, in the words of Argo's executor."""
    command = container.argv[0] if container.argv else ""
    reason = os.strerror(error.errno or errno.EIO).lower() if isinstance(error, OSError) else str(error)
    if isinstance(error, FileNotFoundError) and "/" not in command:
        return f'failed to find name in PATH: exec: "{command}": executable file not found in $PATH'
    if isinstance(error, FileNotFoundError):
        return f'failed to find name in PATH: exec: "{command}": stat {command}: {reason}'
    if isinstance(error, PermissionError):
        return f'failed to find name in PATH: exec: "{command}": {reason}'
    return f"failed to start command: fork/exec {command}: {reason}"


def _linked(spec: PodSpec, container: Container, files: PodFiles, env: dict[str, str]) -> Container:
    """Where there are no namespaces: the mounts as symbolic links below a root that the environment names."""
    root = str(files.links(container.name))
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
    argv = [root + part if part == SCRIPT_PATH else part for part in container.argv]
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
