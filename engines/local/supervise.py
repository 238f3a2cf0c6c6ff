"""The supervisor of one pod: a process that runs its containers one after the other and notes how it ended.

It sleeps unless something happens. Whatever becomes of it, user code runs only below it, and only after `started` is on
disk.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import signal
import struct
import time
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from . import container as containers
from . import linux, processes, sandbox
from .memory import MemoryLimit
from .pod import Container, PodObservation
from .podfiles import PodFiles, read_progress
from .podlog import PodLog

DELETED = "pod deleted"
_KILL_INTERVAL = 0.02  # seconds
_CHANNEL_CHUNK = 1 << 16


def main(files: PodFiles, lock: int) -> NoReturn:
    """Turns this process, a fork, into the pod's supervisor. `lock` is the descriptor that holds the pod's lock."""
    try:
        gc.disable()  # objects of the process this was forked from must not close descriptors that mean others here
        os.chdir("/")
        log = os.open(files.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        containers.keep_only({0, 1, 2, lock})
        containers.default_signals()
        linux.set_name("ffdl-pod")
        linux.become_subreaper()
        _write_result(files, _supervise(files))
    except BaseException:  # noqa: BLE001 - this is a fork: nothing may leave it
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(0)


def _supervise(files: PodFiles) -> PodObservation:
    try:
        return Supervisor(files).run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the pod must end and say so
        os.write(2, traceback.format_exc().encode(errors="replace"))
        return PodObservation("Error", -1, f"the pod's supervisor failed: {error}", finished_at=time.time())


def _write_result(files: PodFiles, result: PodObservation) -> None:
    while True:
        try:
            return files.write_result(result)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            time.sleep(1.0)  # the exit code must not be lost: there may be room later


@dataclass
class _Running:
    """The container that runs now."""

    what: Container
    init: bool
    started: containers.Started
    log: PodLog
    go: int | None
    first: int | None = None  # whose end is the container's
    main: int | None = None
    handle: int | None = None  # pidfd of main
    starter_gone: bool = False
    adopted: bool = False
    released: bool = False
    status: int | None = None  # main's, as from waitpid
    ended: dict[str, Any] | None = None
    error: str = ""
    heard: bytes = b""


class Supervisor:
    """Runs the pod of `files`. To be made in a process without children that is a subreaper."""

    def __init__(self, files: PodFiles) -> None:
        self._files = files
        self._spec = files.spec()
        self._isolation = sandbox.available()
        self._mark = f"{self._spec.name}-{os.urandom(6).hex()}"
        self._memory = MemoryLimit(self._spec.memory, self._mark)
        self._announced = False
        self._asked = False  # SIGTERM has come and was not looked at
        self._deadline: float | None = None  # end of the grace period: the pod is being deleted
        self._killing = False
        self._started_at: float | None = None
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> PodObservation:
        """Returns how the pod ended, when none of its processes is left."""
        try:
            result = self._run()
        finally:
            self._end_all()
            self._memory.remove()
            self._files.open_scratch()
        if self._deadline is not None or self._asked:
            result = PodObservation("Error", -1, DELETED)
        known = {"started_at": self._started_at, "finished_at": time.time()}
        return PodObservation(**{**vars(result), **known, "progress": read_progress(self._spec, self._files)})

    def _run(self) -> PodObservation:
        for name, volume in self._spec.volumes.items():
            if volume.kind in ("empty", "overlay"):
                self._files.volume(name).mkdir(parents=True, exist_ok=True)
        self._files.root.mkdir(exist_ok=True)
        for each in self._spec.init:
            now = self._run_container(each, init=True)
            if self._deadline is not None or now.error:
                return PodObservation("Error", -1, now.error)
            code, reason = self._judge(now)
            if code != 0:
                return PodObservation("Failed", -1, f"{each.name}: {reason} (exit code {code})")
        return self._result(self._run_container(self._spec.main, init=False))

    def _judge(self, now: _Running) -> tuple[int, str]:
        """Exit code and reason, as Kubernetes gives them."""
        status = now.status if now.status is not None else int(signal.SIGKILL)  # all of it was killed
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return code, "Error"
        return 128 - code, "OOMKilled" if code == -signal.SIGKILL and self._memory.was_exceeded() else "Error"

    def _result(self, now: _Running) -> PodObservation:
        if now.error:
            return PodObservation("Error", -1, now.error)
        code, reason = self._judge(now)
        values, problem = {}, ""
        if now.ended is not None:
            values, problem = now.ended["outputs"], now.ended["problem"]
        elif self._isolation == sandbox.NONE:
            values, problem = containers.read_outputs(self._spec, now.what, str(self._files.root))
        if code != 0:
            return PodObservation("Failed", code, f"{now.what.name}: {reason} (exit code {code})", values)
        if problem:
            return PodObservation("Error", -1, problem, values)
        return PodObservation("Succeeded", 0, "", values)

    def _run_container(self, each: Container, init: bool) -> _Running:
        """Runs it to its end: none of its processes is left."""
        self._killing = False
        started = containers.start(self._spec, each, self._files, self._isolation, self._mark)
        now = _Running(each, init, started, PodLog(started.log, self._files.log(each.name, init)), started.go)
        poller = select.poll()
        for descriptor in (self._wake, started.channel.fileno(), started.log):
            poller.register(descriptor, select.POLLIN)
        while self._reap(now):
            for descriptor, _ in poller.poll(self._wait()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif descriptor == started.log:
                    if not now.log.pump():
                        poller.unregister(descriptor)
                elif not self._hear(now):
                    poller.unregister(descriptor)
            self._attend(now)
        while self._hear(now, over=True):
            pass
        self._call_off(now)
        now.log.close()
        started.channel.close()
        if now.handle is not None:
            os.close(now.handle)
        return now

    def _wait(self) -> float | None:
        """Milliseconds until something has to be done by the clock."""
        due = [self._memory.next_look] if self._memory.next_look is not None else []
        if self._deadline is not None and not self._killing:
            due.append(self._deadline)
        if self._killing and self._isolation == sandbox.NONE:
            due.append(time.monotonic() + _KILL_INTERVAL)
        return max(0.0, (min(due) - time.monotonic()) * 1000 + 1) if due else None

    def _attend(self, now: _Running) -> None:
        if self._asked:
            self._asked = False
            self._delete(now, forced=bool((self._files.read(self._files.terminate) or {}).get("force")))
        late = self._deadline is not None and time.monotonic() >= self._deadline
        if late or (self._killing and self._isolation == sandbox.NONE):
            self._kill(now)
        above = now.first if now.first is not None and self._isolation != sandbox.NONE else os.getpid()
        if self._memory.due() and self._memory.exceeded(above):
            self._kill(now)

    def _hear(self, now: _Running, over: bool = False) -> bool:
        """Reads what the container's processes say. False when none can say anything any more."""
        try:
            data, extra, _, _ = now.started.channel.recvmsg(_CHANNEL_CHUNK, 64)
        except ConnectionError:
            return False
        if not data:
            return False
        sender = struct.unpack("3i", extra[0][2][:12])[0]
        now.heard += data
        while b"\n" in now.heard:
            line, _, now.heard = now.heard.partition(b"\n")
            word, _, value = line.decode().partition(" ")
            if word == containers.ERROR:
                now.error = json.loads(value)
            elif word == containers.ENDED:
                now.ended = said = json.loads(value)
                now.status = said["status"]
            elif word == containers.FIRST and not over:
                now.first = sender
                self._adopt(now)
            elif word == containers.MAIN and not over:
                self._meet_main(now, sender)
        return True

    def _adopt(self, now: _Running) -> None:
        """Once the starter has ended, the first process is this one's child, and is told so."""
        if self._isolation != sandbox.NONE and now.first is not None and now.starter_gone and not now.adopted:
            now.adopted = True
            if self._killing:
                self._kill(now)
            self._tell(now, containers.ADOPTED)

    def _meet_main(self, now: _Running, pid: int) -> None:
        """Main waits. Notes everything that must be known of it, then lets it run."""
        now.main = pid
        if self._isolation == sandbox.NONE:
            now.first = pid
        if not self._announced:
            self._announce()
        if self._deadline is not None or self._asked:
            return self._delete(now, forced=True)
        with contextlib.suppress(OSError):  # an old kernel: main is signalled by its pid then
            now.handle = os.pidfd_open(pid)
        if not now.init:
            self._memory.apply(pid)
            self._started_at = time.time()
        described = {name: _identity(number) for name, number in (("first", now.first or pid), ("main", pid))}
        state = {"container": now.what.name, "init": now.init, "started_at": self._started_at, **described}
        self._files.write(self._files.state, state)
        now.released = True
        return self._tell(now, containers.RUN)

    def _announce(self) -> None:
        """From here on the pod counts as run, and is never run again."""
        self._announced = True
        group = self._memory.group
        values = {
            "supervisor": {**_identity(os.getpid()), "boot": processes.boot_id()},
            "mark": self._mark,
            "isolation": self._isolation,
            "cgroup": None if group is None else {"path": group.path, "version": group.version},
        }
        self._files.write_durably(self._files.started, values)
        self._asked = self._asked or self._files.terminate.exists()

    def _delete(self, now: _Running, forced: bool) -> None:
        """The pod is to go: SIGTERM to main and its grace; at once if forced, or if main does not run yet."""
        at_once = forced or not now.released
        if self._deadline is None:
            self._deadline = time.monotonic() + self._spec.grace
            if not at_once:
                self._ask_main(now)
        if at_once:
            self._deadline = time.monotonic()
            self._kill(now)

    def _ask_main(self, now: _Running) -> None:
        if now.handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(now.handle, signal.SIGTERM)
        elif now.main is not None:
            processes.send(now.main, signal.SIGTERM)

    def _kill(self, now: _Running) -> None:
        """SIGKILL to everything in the container."""
        self._killing = True
        self._call_off(now)
        if self._isolation == sandbox.NONE:
            self._memory.kill()
            self._kill_children()
        elif now.first is not None:
            processes.send(now.first, signal.SIGKILL)  # not reaped yet, so the pid is its own

    def _kill_children(self) -> None:
        for pid in processes.descendants([os.getpid()]):
            processes.send(pid, signal.SIGKILL)

    def _end_all(self) -> None:
        """What an error left behind."""
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    self._kill_children()
                    time.sleep(_KILL_INTERVAL)
            except ChildProcessError:
                return

    def _reap(self, now: _Running) -> bool:
        """Takes note of children that ended. False when no process of the container is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == now.started.starter:
                now.starter_gone = True
                self._adopt(now)
            if pid == now.first:
                now.first = None
                if self._isolation == sandbox.NONE:
                    now.status = status
                    self._kill(now)

    def _tell(self, now: _Running, what: bytes) -> None:
        if now.go is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(now.go, what)

    def _call_off(self, now: _Running) -> None:
        """Closes the go pipe: who waits at it leaves."""
        if now.go is not None:
            os.close(now.go)
            now.go = None

    def _on_term(self, *_: object) -> None:
        self._asked = True


def _identity(pid: int) -> dict[str, int]:
    found = processes.stat(pid)
    return {"pid": pid, "start": found.start if found else 0}
