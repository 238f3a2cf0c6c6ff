"""The supervisor of one pod: a process that runs its containers and notes how it ended.

It sleeps unless something happens. Whatever becomes of it, user code runs only below it, and only after `started` is on
disk.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import time
import traceback
from typing import NoReturn

from . import container as containers
from . import linux, outputs, podstate, processes, sandbox, staging
from .events import Events
from .memory import MemoryLimit
from .pod import MAIN as MAIN_NAME
from .pod import Container, ContainerEnd, PodObservation
from .podfiles import PodFiles, read_progress
from .running import INIT, MAIN, SIDECAR, Running
from .verdict import DELETED, NOT_RUN, OVERDUE, TERMINATED, message, result, verdict

NOTICE = 1.0  # seconds that Argo takes to end a set that has failed: its other containers may have ended by then
_KILL_INTERVAL = 0.02  # seconds


def main(files: PodFiles, lock: int) -> NoReturn:
    """Turns this process, a fork, into the pod's supervisor. `lock` is the descriptor that holds the pod's lock."""
    try:
        os.setpgid(0, 0)
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


class Supervisor:
    """Runs the pod of `files`. To be made in a process without children that is a subreaper."""

    def __init__(self, files: PodFiles) -> None:
        self._files = files
        self._spec = files.spec()
        self._isolation = sandbox.available()
        self._mark = f"{self._spec.name}-{os.urandom(6).hex()}"
        everyone = [*self._spec.init, *self._spec.containers, *self._spec.sidecars]
        self._limits = [MemoryLimit(each.memory, self._mark_of(number)) for number, each in enumerate(everyone)]
        self._numbers = {id(each): number for number, each in enumerate(everyone)}
        self._live: list[Running] = []
        self._waiting: list[Container] = []  # main ones whose turn has not come
        self._again: list[tuple[float, Container]] = []  # main ones that failed, and when they are tried again
        self._tries: dict[str, int] = {}
        self._ends: dict[str, ContainerEnd] = {}
        self._error = ""  # why a container could not be set up
        self._outputs = outputs.Outputs()
        self._result = b""
        self._announced = False
        self._deleted = False
        self._overdue = False
        now, limit, end = time.monotonic(), self._spec.active_deadline, self._spec.deadline
        self._bound = None if limit is None else now + limit  # when the whole pod is ended
        self._last = None if end is None else now + end - time.time()  # when its main containers are
        self._started_at: float | None = None
        self._events = Events()

    def run(self) -> PodObservation:
        """Returns how the pod ended, when none of its processes is left."""
        try:
            phase, words = self._run()
        finally:
            self._end_all()
            for limit in self._limits:
                limit.remove()
            self._files.open_scratch()
        progress = read_progress(self._spec, self._files)
        times = (self._started_at, time.time())
        if self._deleted or self._events.asked:
            return _lost("Error", DELETED, progress, times)
        if self._error or not all(each.name in self._ends for each in self._spec.containers):
            return _lost(phase, words, progress, times)
        main = self._spec.main.name
        return PodObservation(
            phase,
            self._ends[main].exit_code if main == MAIN_NAME else None,
            words,
            outputs=self._outputs.parameters,
            artifacts=self._outputs.artifacts,
            result=result(self._result) if self._spec.result else None,
            containers={each.name: self._ends[each.name] for each in self._spec.containers},
            ip=self._spec.address,
            progress=progress,
            started_at=times[0],
            finished_at=times[1],
        )

    def _run(self) -> tuple[str, str]:
        """The pod's phase and message."""
        try:
            staging.prepare(self._spec, self._files)
        except staging.StagingError as error:
            return "Error", message("init", ContainerEnd(NOT_RUN, detail=str(error)))
        for each in self._spec.init:
            self._start(each, INIT)
            self._serve()
            if self._deleted or self._error:
                return "Error", self._error
            if self._overdue:
                return "Failed", OVERDUE
            if (end := self._ends.pop(each.name)).exit_code != 0:
                return "Failed", message(each.name, end)
        for each in self._spec.sidecars:
            self._start(each, SIDECAR)
        self._waiting = list(self._spec.containers)
        self._begin()
        self._serve()
        return ("Error", self._error) if self._deleted or self._error else self._verdict()

    def _verdict(self) -> tuple[str, str]:
        """The pod's end, once all of its containers have ended."""
        if self._overdue:
            return "Failed", OVERDUE
        problem = self._outputs.problem
        try:
            outputs.store(self._spec, self._files, self._outputs.artifacts)
        except OSError as error:
            problem = problem or f"failed to put artifact: {error.strerror}"
        return verdict(self._spec, self._ends, problem)

    def _start(self, each: Container, kind: str) -> None:
        number = self._numbers[id(each)]
        keep = outputs.LIMIT + 1 if self._spec.result and each is self._spec.main else 0
        limit, mark = self._limits[number], self._mark_of(number)
        running = Running(self._spec, each, self._files, mark, limit, kind, self._meet, keep)
        self._live.append(running)
        self._events.listen(running.sources)
        if not self._announced:
            self._announce()  # while the container is being set up

    def _begin(self) -> None:
        """Starts the main containers whose turn has come, and ends those whose turn never will."""
        for each in list(self._waiting):
            ends = [(name, self._ends.get(name)) for name in each.after]
            failed = next(((name, end.exit_code) for name, end in ends if end is not None and end.exit_code), None)
            if failed is not None:
                self._waiting.remove(each)
                words = f'dependency "{failed[0]}" exited with non-zero code: {failed[1]}'
                self._ends[each.name] = ContainerEnd(NOT_RUN, detail=words, finished_at=time.time())
                return self._begin()
            if all(end is not None for _, end in ends):
                self._waiting.remove(each)
                self._start(each, MAIN)
        return None

    def _serve(self) -> None:
        """Until no container lives, nor is to be tried again."""
        while self._live or self._again:
            self._events.wait(self._due())
            self._attend()
            childless = not self._reap()
            for running in [each for each in self._live if each.over(childless)]:
                self._ended(running)

    def _ended(self, running: Running) -> None:
        """Takes note of a container's end, and of what follows from it."""
        self._events.forget(running.sources)
        end = running.close()
        self._live.remove(running)
        self._error = self._error or running.error
        what = running.what
        if running.kind == MAIN:
            self._take_outputs(running)
            self._tries[what.name] = self._tries.get(what.name, 0) + 1
            again = self._tries[what.name] < what.tries and not running.error
            if end.exit_code and again and not running.asked and not self._deleted:
                self._again.append((time.monotonic() + what.pause, what))
                return
        self._ends[what.name] = end
        if running.kind != INIT:
            self._follow(running, end)

    def _follow(self, running: Running, end: ContainerEnd) -> None:
        """One container of those that run side by side has ended for good."""
        if running.kind == MAIN and not self._deleted:
            self._begin()
            if end.exit_code or running.error:
                noticed = time.monotonic() + NOTICE
                self._last = noticed if self._last is None else min(self._last, noticed)
        if all(each.name in self._ends for each in self._spec.containers) or self._deleted:
            self._ask(self._live)  # the sidecars
        if self._live:
            self._write_state()

    def _wind_up(self) -> None:
        """A main container has failed, or their time is up: the others are ended, as Argo does."""
        for each in [*self._waiting, *(what for _, what in self._again)]:
            self._ends.setdefault(each.name, ContainerEnd(TERMINATED, finished_at=time.time()))
        self._waiting, self._again = [], []
        self._ask([running for running in self._live if running.kind == MAIN])

    def _ask(self, several: list[Running]) -> None:
        for running in several:
            running.ask(self._spec.grace)

    def _take_outputs(self, running: Running) -> None:
        if running.what is not self._spec.main:
            return
        self._result = (self._result + running.result)[-outputs.LIMIT - 1 :]
        self._outputs = running.outputs
        if self._isolation == sandbox.NONE and outputs.wanted(self._spec, running.what):
            links, place = self._files.links(running.what.name), self._files.volume(outputs.VOLUME)
            self._outputs = outputs.collect(self._spec, running.what, str(links), str(place))

    def _meet(self, running: Running) -> None:
        """Its command waits. Notes everything that must be known of it, then lets it run."""
        if self._deleted or self._events.asked:
            return running.kill()
        running.release()
        if running.kind != INIT and self._started_at is None:
            self._started_at = running.started_at
        self._write_state()
        return running.go_on()

    def _announce(self) -> None:
        """From here on the pod counts as run, and is never run again."""
        self._announced = True
        values = podstate.announcement(self._mark, self._isolation, [limit.group for limit in self._limits])
        self._files.write_durably(self._files.started, values)
        self._events.asked = self._events.asked or self._files.terminate.exists()

    def _write_state(self) -> None:
        self._files.write(self._files.state, podstate.state(self._live, self._ends, self._started_at))

    def _due(self) -> list[float | None]:
        """When something has to be done by the clock."""
        due = [*(running.due() for running in self._live), *(moment for moment, _ in self._again)]
        return [*due, self._bound, self._last]

    def _attend(self) -> None:
        if self._events.asked:
            self._events.asked = False
            self._delete(forced=bool((self._files.read(self._files.terminate) or {}).get("force")))
        for running in self._live:
            running.attend()
        now = time.monotonic()
        if self._bound is not None and now >= self._bound:
            self._bound, self._overdue = None, True
            self._wind_up()
            self._ask(self._live)
        if self._last is not None and now >= self._last:
            self._last = None
            self._wind_up()
        for moment, what in list(self._again):
            if moment <= now:
                self._again.remove((moment, what))
                self._start(what, MAIN)

    def _delete(self, forced: bool) -> None:
        """The pod is to go: SIGTERM to each command and its grace; at once if forced."""
        self._deleted = True
        self._waiting, self._again = [], []
        if forced:
            for running in self._live:
                running.kill()
        else:
            self._ask(self._live)

    def _reap(self) -> bool:
        """Takes note of children that ended. False when none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            ready = [running for running in self._live if running.reaped(pid, status)]
            if ready:
                self._write_state()

    def _end_all(self) -> None:
        """What an error left behind."""
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    for pid in processes.descendants([os.getpid()]):
                        processes.send(pid, signal.SIGKILL)
                    time.sleep(_KILL_INTERVAL)
            except ChildProcessError:
                return

    def _mark_of(self, number: int) -> str:
        return f"{self._mark}.{number}"


def _lost(phase: str, message: str, progress: str, times: tuple[float | None, float]) -> PodObservation:
    """A pod whose main containers have no end of their own."""
    return PodObservation(phase, -1, message, progress=progress, started_at=times[0], finished_at=times[1])
