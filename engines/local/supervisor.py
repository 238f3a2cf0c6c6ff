"""Pods as process trees of this machine: launch one, see how it is, end it, clear up after it.

Every call works from any process at any time: what is known of a pod is in its folder, and who holds its lock runs it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from . import processes, sandbox, supervise
from .cgroup import Cgroup
from .pod import ContainerEnd, PodObservation
from .podfiles import PodFiles, read_progress
from .verdict import DELETED

_BURIAL = 2.0  # seconds that one look waits for the processes of a dead supervisor's pod
_LOCK_TRIES = 20
_children: set[int] = set()  # supervisors that this process has started


def launch(pod_dir: Path) -> None:
    """Has the pod of `pod_dir`/pod.json run, unless it has been run, ended or is running. Returns at once.

    The pod outlives this process. Raises OSError, ValueError (FFDL_ISOLATION).
    """
    files = _files(pod_dir)
    sandbox.available()  # tried here, once for all pods
    lock = _take_lock(files)
    if lock is None:
        return
    try:
        if files.started.exists() or files.result.exists():
            return
        child = os.fork()
        if child == 0:
            supervise.main(files, lock)
        with contextlib.suppress(OSError):  # it has ended
            os.setpgid(child, child)  # before this returns: what is sent to our own group is not meant for the pod
        _children.add(child)
    finally:
        os.close(lock)
    _reap()


def observe(pod_dir: Path) -> PodObservation | None:
    """What is known of the pod now. None: it was never started, launch it.

    A pod whose supervisor died is ended here, wholly, before it counts as ended.
    """
    files = _files(pod_dir)
    if (result := files.read_result()) is not None:
        return result
    started = files.read(files.started)
    if started is not None and _supervised(started):
        return _live(files)
    if started is None and not files.lock.exists():
        return None
    lock = files.take_lock()
    if lock is None:
        return files.read_result() or _live(files)
    try:
        return files.read_result() or (_bury(files) if files.started.exists() else None)
    finally:
        os.close(lock)


def terminate(pod_dir: Path, force: bool = False) -> None:
    """Deletes the pod as Kubernetes does: SIGTERM to main, its grace, SIGKILL to all; at once if `force`. Doesn't wait.

    The pod ends as Error, -1, `pod deleted`, whatever main makes of it. One never started never will be.
    """
    files = _files(pod_dir)
    if files.result.exists() or not files.folder.is_dir():
        return
    if force or not files.terminate.exists():
        files.write(files.terminate, {"force": force})
    lock = _take_lock(files)
    if lock is None:
        started = files.read(files.started)
        if started is not None:  # else the supervisor looks for the file once it has written that one
            _signal(started["supervisor"])
        return
    try:
        if not files.result.exists():
            if files.started.exists():
                _bury(files)
            else:
                files.write_result(PodObservation("Error", -1, DELETED, finished_at=time.time()))
    finally:
        os.close(lock)


def cleanup(pod_dir: Path) -> None:
    """Removes what an ended pod left outside its folder, and what makes the folder hard to delete. Idempotent."""
    files = _files(pod_dir)
    started = files.read(files.started)
    if started is not None and (files.result.exists() or not _supervised(started)):
        _clear(files, started)


def _reap() -> None:
    """Supervisors that have ended and are this process's children leave no more than a moment's trace of it."""
    for child in list(_children):
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                _children.discard(child)
        except ChildProcessError:
            _children.discard(child)


def _files(pod_dir: Path) -> PodFiles:
    return PodFiles(Path(os.path.abspath(pod_dir)))


def _take_lock(files: PodFiles) -> int | None:
    """The lock, None if a supervisor holds it. Who only looks holds it for a moment, so this tries more than once."""
    for _ in range(_LOCK_TRIES):
        if (lock := files.take_lock()) is not None:
            return lock
        if files.started.exists():
            return None
        time.sleep(0.0005)
    return None


def _supervised(started: dict[str, Any]) -> bool:
    mine = started["supervisor"]
    return mine["boot"] == processes.boot_id() and processes.alive(mine["pid"], mine["start"])


def _signal(who: dict[str, Any]) -> None:
    """SIGTERM to the supervisor, if that is still who has its pid."""
    try:
        handle = os.pidfd_open(who["pid"])
    except ProcessLookupError:
        return
    except OSError:  # a kernel without them
        if processes.alive(who["pid"], who["start"]):
            processes.send(who["pid"], signal.SIGTERM)
        return
    try:
        if processes.alive(who["pid"], who["start"]):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _live(files: PodFiles) -> PodObservation:
    state, spec = files.read(files.state), files.known_spec()
    if spec is None:
        return PodObservation("Pending")
    if state is None or not state["up"]:
        return PodObservation("Pending", ip=spec.address)
    ends = {name: ContainerEnd(**end) for name, end in state["ends"].items()}
    progress = read_progress(spec, files)
    return PodObservation(
        "Running",
        containers=ends,
        ready=state["ready"],
        ip=spec.address,
        progress=progress,
        started_at=state["started_at"],
    )


def _bury(files: PodFiles) -> PodObservation:
    """The supervisor is dead, this process holds the lock: ends what is left of the pod, then notes its end."""
    started = files.read(files.started)
    if started is not None:  # else it died while it wrote that: nothing has run yet
        if started["supervisor"]["boot"] == processes.boot_id() and not _end(files, started):
            return _live(files)
        _clear(files, started)
    state = files.read(files.state) or {}
    result = PodObservation(
        "Error",
        -1,
        DELETED,
        progress=read_progress(spec, files) if (spec := files.known_spec()) is not None else "",
        started_at=state.get("started_at"),
        finished_at=time.time(),
    )
    files.write_result(result)
    return result


def _end(files: PodFiles, started: dict[str, Any]) -> bool:
    """Kills every process of the pod. False if some are left after a while."""
    known = list((files.read(files.state) or {}).get("containers", {}).values())
    leaders = [(each["main"]["pid"], each["main"]["start"]) for each in known]
    groups = [Cgroup(**group) for group in started["cgroups"]]

    def gone() -> bool:
        found = processes.remnants(started["mark"], leaders)
        for first in (each["first"] for each in known):
            init = processes.stat(first["pid"]) if first["pid"] else None
            if init is not None and init.start == first["start"] and init.alive:
                found.append(init)
        for process in found:
            processes.kill(process)
        killed = [group.kill() for group in groups]
        return not any(killed) and not found

    return processes.until(gone, _BURIAL)


def _clear(files: PodFiles, started: dict[str, Any]) -> None:
    for group in started["cgroups"]:
        Cgroup(**group).remove()
    files.open_scratch()
