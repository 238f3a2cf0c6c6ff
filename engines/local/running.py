"""The supervisor's side of one container, from its start until none of its processes is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import time
from collections.abc import Callable

from . import container as containers
from . import outputs, processes, sandbox
from .memory import MemoryLimit
from .pod import Container, ContainerEnd, PodSpec
from .podfiles import PodFiles
from .podlog import PodLog
from .probe import Probing

INIT, MAIN, SIDECAR = "init", "main", "sidecar"  # what a container is to its pod
_KILL_INTERVAL = 0.02  # seconds
_CHANNEL_CHUNK = 1 << 16


class Running:
    """A container that has been started. `mark` is in the environment of all of its processes.

    `met` is called when the command waits for leave to run: see `release`. The last `keep` bytes of its standard output
    are kept. Descriptors to be polled for input, each with what to call then (false: nothing more will come of it), are
    in `sources`.
    """

    def __init__(
        self,
        spec: PodSpec,
        what: Container,
        files: PodFiles,
        mark: str,
        memory: MemoryLimit,
        kind: str,
        met: Callable[[Running], None],
        keep: int = 0,
    ) -> None:
        self.what, self.kind, self.mark, self.memory = what, kind, mark, memory
        self._spec, self._files, self._met = spec, files, met
        self._isolation = sandbox.available()
        self._started = containers.start(spec, what, files, self._isolation, mark, apart=keep > 0)
        path = files.log(what.name, kind == INIT)
        self._logs = [PodLog(self._started.output, path, keep)]
        if self._started.errors is not None:
            self._logs.append(PodLog(self._started.errors, path))
        self._pipes = [self._started.adopt, self._started.go]  # open until called off
        self.first: int | None = None  # whose end is the container's
        self.main: int | None = None
        self._handle: int | None = None  # pidfd of main
        self._starter_gone = self._adopted = self._silent = False
        self._guarded = self._isolation == sandbox.NONE  # nothing of it outlives the supervisor
        self.released = self.asked = self.killing = False
        self._deadline: float | None = None
        self._status: int | None = None  # main's, as from waitpid
        self._heard = b""
        self.missing = ""  # why the command could not be run
        self.error = ""  # why the container could not be set up
        self.outputs = outputs.Outputs()
        self.started_at: float | None = None
        self._probing: Probing | None = None
        self._started.channel.setblocking(False)
        self.sources: dict[int, Callable[[], bool]] = {log.pipe: log.pump for log in self._logs}
        self.sources[self._started.channel.fileno()] = self._listen

    @property
    def result(self) -> bytes:
        """The last of what the command wrote to its standard output, as much as was to be kept."""
        return self._logs[0].kept

    @property
    def ready(self) -> bool:
        """Whether its command runs and, if there is a way to tell, answers."""
        return self.released and (self._probing is None or self._probing.ready)

    def due(self) -> float | None:
        """When something has to be done by the clock, in seconds of time.monotonic()."""
        times = [self.memory.next_look, None if self.killing else self._deadline]
        times.append(None if self._probing is None else self._probing.due())
        if self.killing and self._isolation == sandbox.NONE:
            times.append(time.monotonic() + _KILL_INTERVAL)
        return min((moment for moment in times if moment is not None), default=None)

    def attend(self) -> None:
        """Does what is due."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        if late or (self.killing and self._isolation == sandbox.NONE):
            self.kill()
        if self.memory.due() and self.memory.exceeded(self._members):
            self.kill()
        if self._probing is not None:
            self._probing.attend()

    def release(self) -> None:
        """Lets the command, which waits, run."""
        assert self.main is not None
        with contextlib.suppress(OSError):  # an old kernel: main is signalled by its pid then
            self._handle = os.pidfd_open(self.main)
        self.memory.apply(self.main)
        self.started_at = time.time()
        self.released = True
        if self.what.probe is not None and self.first is not None:
            root = str(self._files.links(self.what.name)) if self._isolation == sandbox.NONE else ""
            self._probing = Probing(self.what, self._spec.address, self.first, root)

    def go_on(self) -> None:
        """To be called once it is noted down what has been released."""
        self._tell(self._started.go)

    def ask(self, grace: float) -> None:
        """SIGTERM to the command's process group, SIGKILL to all after `grace` seconds; at once if it does not run."""
        if self._deadline is None:
            self.asked = True
            self._deadline = time.monotonic() + grace
            if self.released:
                return self._terminate()
            self.kill()
        return None

    def kill(self) -> None:
        """SIGKILL to everything in the container."""
        self.killing = True
        self._call_off()
        if self._isolation == sandbox.NONE:
            self.memory.kill()
            for pid in self._members():
                processes.send(pid, signal.SIGKILL)
        elif self.first is not None:
            processes.send(self.first, signal.SIGKILL)  # not reaped yet, so the pid is its own

    def reaped(self, pid: int, status: int) -> bool:
        """A child of the supervisor has ended; it may have been one of this container's. Whether that made it ready."""
        self._listen()  # to what it said before its end
        if pid == self._started.starter:
            self._starter_gone = True
            self._adopt()
            if self._isolation == sandbox.NONE:
                self._status = status
                self.kill()
        if pid == self.first:
            self.first = self._probing = None
        return self._probing is not None and self._probing.reaped(pid, status)

    def over(self, childless: bool) -> bool:
        """Whether none of its processes is left. `childless`: none of the supervisor's is."""
        if childless:
            return True
        if not self._starter_gone or self.first is not None:
            return False
        return self._silent if self._isolation != sandbox.NONE else not self._members()

    def close(self) -> ContainerEnd:
        """To be called once it is over: how it ended."""
        while self._hear(over=True):
            pass
        self._call_off()
        for log in self._logs:
            log.close()
        self._started.channel.close()
        if self._handle is not None:
            os.close(self._handle)
        end = self._end()
        self.memory.remove()
        return end

    def _end(self) -> ContainerEnd:
        status = self._status if self._status is not None else int(signal.SIGKILL)  # all of it was killed
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return ContainerEnd(code, "Error" if code else "Completed", self.missing, time.time())
        killed = code == -signal.SIGKILL and self.memory.was_exceeded()
        return ContainerEnd(128 - code, "OOMKilled" if killed else "Error", "", time.time())

    def _members(self) -> list[int]:
        """The processes of user code in it, as far as they can be told."""
        if self._isolation != sandbox.NONE:
            return [] if self.first is None else processes.descendants([self.first])
        born = processes.stat(self.main) if self.main is not None else None
        leader = [] if self.main is None else [(self.main, born.start if born else 0)]
        return [process.pid for process in processes.remnants(self.mark, leader)]

    def _hear(self, over: bool = False) -> bool:
        """Reads what the container's processes say. False when there is nothing to be read."""
        try:
            data, extra, _, _ = self._started.channel.recvmsg(_CHANNEL_CHUNK, 64)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self._silent = True  # none is left that could
            return False
        sender = struct.unpack("3i", extra[0][2][:12])[0]
        self._heard += data
        while b"\n" in self._heard:
            line, _, self._heard = self._heard.partition(b"\n")
            word, _, value = line.decode().partition(" ")
            self._note(word, json.loads(value or "null"), sender, over)
        return True

    def _listen(self) -> bool:
        """Hears all that there is. False when none can say anything any more."""
        while self._hear():
            pass
        return not self._silent

    def _note(self, word: str, value: object, sender: int, over: bool) -> None:
        if word == containers.ERROR:
            self.error = str(value)
        elif word == containers.MISSING:
            self.missing = str(value)
        elif word == containers.ENDED and isinstance(value, dict):
            self._status, self.outputs = value["status"], outputs.Outputs.from_dict(value["outputs"])
        elif word == containers.FIRST and not over:
            self.first = sender
            self._adopt()
        elif word == containers.GUARDED and not over:
            self._guarded = True
            self._greet()
        elif word == containers.MAIN and not over:
            self.main = sender
            if self._isolation == sandbox.NONE:
                self.first = sender
            self._greet()

    def _greet(self) -> None:
        """Once the command waits and nothing of it would outlive the supervisor, this one is told so."""
        if self.main is not None and self._guarded:
            self._met(self)

    def _adopt(self) -> None:
        """Once the starter has ended, the first process is this one's child, and is told so."""
        if self._isolation != sandbox.NONE and self.first is not None and self._starter_gone and not self._adopted:
            self._adopted = True
            if self.killing:
                self.kill()
            self._tell(self._started.adopt)

    def _terminate(self) -> None:
        if self.main is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, 0)  # it is still who has this pid
            os.killpg(self.main, signal.SIGTERM)

    def _tell(self, pipe: int) -> None:
        if pipe in self._pipes:
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, b"!")

    def _call_off(self) -> None:
        """Closes the pipes: who waits at one leaves."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = []
