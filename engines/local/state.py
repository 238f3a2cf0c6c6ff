"""The embedded engine's state: files under $FFDL_HOME, one folder a job, each replaced atomically.

Layout (format 1):
    format                          the number
    jobs/<id>/control/              workflow.json, status.json, report.json, epochs/, requests/   (learner.contract)
    jobs/<id>/lock                  flock: held while workflow.json is edited
    jobs/<id>/runner.lock           flock: held by the runner for its life
    jobs/<id>/created               its mtime orders the jobs
    jobs/<id>/objects/<kind>/<name> ConfigMaps and Secrets as folders of files, Services as files
    jobs/<id>/environment.json      the submitter's Python and environment, the pods' isolation
    jobs/<id>/claims/<name>/        volumeClaimTemplates
    jobs/<id>/pods/<pod>/           what the supervisor keeps
    jobs/<id>/artifacts/            what the keys of its Workflow's artifacts lead to
    jobs/<id>/logs/                 the learners' logs and metrics, once the job's volume is gone
    jobs/<id>/summary.json          JobStatus of a finished job
    active/<id>                     a job that wants a runner
    claims/<name>/                  named claims, the results store among them
    leases/                         what of the machine is taken
    secrets/<name>/<key>            Secrets that the user put there
    trash/<id>-<pid>/               what that process is making or removing
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...learner import contract
from ..base import Damaged, EngineError, NoSuchJob

FORMAT = "1"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def default_home() -> Path:
    """$FFDL_HOME, else the XDG data folder."""
    if home := os.environ.get("FFDL_HOME"):
        return Path(home).absolute()
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(data, "ffdl")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive flock on `path` (created if missing)."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


_WHOLE_FILE = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid


def try_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock on `path` until it is closed, or None if another process does.

    An open-file-description lock: unlike with flock, `is_locked` can look without taking it for a moment.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock on `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        wanted = _WHOLE_FILE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted)
        return bool(_WHOLE_FILE.unpack(found)[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


def read_json(path: Path | str) -> Any:
    """The value in `path`, None if there is no such file. Raises Damaged for one that is not JSON."""
    try:
        with open(path, "rb") as stream:
            return json.loads(stream.read())
    except FileNotFoundError:
        return None
    except ValueError:
        raise Damaged(f"{path} is damaged: not JSON") from None


def write_json(path: Path, value: Any) -> None:
    contract.atomic_write(str(path), json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), 0o600)


def _remove_tree(path: Path) -> None:
    import shutil  # costs a command that removes nothing a twentieth of its time

    shutil.rmtree(path, ignore_errors=True)


class Job:
    """One job's folder."""

    def __init__(self, home: Home, job_id: str) -> None:
        self._set(home, job_id, home.path / "jobs" / job_id)

    def _set(self, home: Home, job_id: str, path: Path) -> None:
        self.home, self.id, self.path = home, job_id, path
        self.control, self.pods, self.objects = path / "control", path / "pods", path / "objects"

    @classmethod
    def at(cls, home: Home, job_id: str, path: Path) -> Job:
        """A job whose folder is not yet in its place."""
        job = cls.__new__(cls)
        job._set(home, job_id, path)
        return job

    def workflow(self) -> dict[str, Any]:
        """The Workflow object, status included. Raises NoSuchJob, Damaged."""
        workflow = read_json(self.control / contract.CONTROL_WORKFLOW)
        if workflow is None and not self.path.is_dir():
            raise NoSuchJob(f"no job {self.id}; `ffdl list -a` shows all")
        status = read_json(self.control / contract.CONTROL_STATUS) or {}
        if not (isinstance(workflow, dict) and "metadata" in workflow and "spec" in workflow):
            raise Damaged(f"{self.control / contract.CONTROL_WORKFLOW} is damaged: no Workflow")
        if not isinstance(status, dict):
            raise Damaged(f"{self.control / contract.CONTROL_STATUS} is damaged: no status")
        return {**workflow, "status": status}

    def write_status(self, status: dict[str, Any]) -> None:
        write_json(self.control / contract.CONTROL_STATUS, status)

    def report(self) -> dict[str, Any] | None:
        """The helper's last line of status."""
        with contextlib.suppress(Damaged):
            value = read_json(self.control / contract.CONTROL_REPORT)
            return value if isinstance(value, dict) else None
        return None

    @contextlib.contextmanager
    def edit(self) -> Iterator[dict[str, Any]]:
        """Hands out the Workflow object, its status for reading; keeps what was changed in metadata and spec."""
        if not self.path.is_dir():
            raise NoSuchJob(f"no job {self.id}; `ffdl list -a` shows all")
        with locked(self.path / "lock"):
            workflow = self.workflow()
            before = json.dumps(workflow)
            yield workflow
            if json.dumps(workflow) != before:
                kept = {key: value for key, value in workflow.items() if key != "status"}
                write_json(self.control / contract.CONTROL_WORKFLOW, kept)

    @property
    def runner_lock(self) -> Path:
        return self.path / "runner.lock"

    def has_runner(self) -> bool:
        return is_locked(self.runner_lock)

    @property
    def deleting(self) -> Path:
        """The mark of a job that is being deleted; `results` in it if those go too."""
        return self.path / "deleting"

    def volume(self) -> Path:
        """The job volume."""
        return self.path / "claims" / "job"

    @property
    def artifacts(self) -> Path:
        """What the keys of its Workflow's artifacts lead to."""
        return self.path / "artifacts"

    def log_folder(self) -> Path:
        """Where the learners' logs and metrics are now."""
        kept = self.path / "logs"
        return kept if kept.is_dir() else self.volume() / "job" / "logs"


class Home:
    """$FFDL_HOME."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = (path or default_home()).absolute()
        try:
            for folder in ("jobs", "active", "claims", "leases", "trash"):
                (self.path / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
            marker = self.path / "format"
            if not marker.exists():
                contract.atomic_write(str(marker), (FORMAT + "\n").encode())
            found = marker.read_text().strip()
        except OSError as error:
            raise EngineError(
                f"{self.path} can't be used: {error.strerror}; set FFDL_HOME to a folder of yours"
            ) from None
        if found != FORMAT:
            raise EngineError(
                f"{self.path} has format {found}, this ffdl knows {FORMAT}: upgrade ffdl or set FFDL_HOME"
            )

    def job(self, job_id: str) -> Job:
        """Raises NoSuchJob."""
        job = Job(self, job_id)
        if "/" in job_id or job_id.startswith(".") or not job_id or not job.path.is_dir():
            raise NoSuchJob(f"no job {job_id}; `ffdl list -a` shows all")
        return job

    def ids(self) -> list[str]:
        """Newest first."""
        found = []
        with os.scandir(self.path / "jobs") as entries:
            for entry in entries:
                try:
                    found.append((os.stat(f"{entry.path}/created").st_mtime_ns, entry.name))
                except OSError:
                    if os.path.isdir(entry.path):  # else deleted meanwhile
                        found.append((0, entry.name))
        return [name for _, name in sorted(found, reverse=True)]

    def create(self, job_id: str, fill: Any) -> Job:
        """Makes a job's folder whole or not at all: `fill(job)` writes to one that is then renamed into place."""
        self._sweep()
        staging = self.path / "trash" / f"{job_id}-{os.getpid()}"
        draft = Job.at(self, job_id, staging)
        try:
            for folder in (
                draft.control / contract.CONTROL_EPOCHS,
                draft.control / contract.CONTROL_REQUESTS,
                draft.pods,
                draft.objects,
            ):
                folder.mkdir(parents=True, mode=0o700)
            fill(draft)
            with locked(self.path / "lock"):
                self._stamp(staging / "created")
                if (self.path / "jobs" / job_id).exists():
                    raise EngineError(f"a job {job_id} is there already")
                (self.path / "active" / job_id).touch()  # before: a job that nobody looks for would never run
                os.rename(staging, self.path / "jobs" / job_id)
        finally:
            _remove_tree(staging)
        return Job(self, job_id)

    def _stamp(self, marker: Path) -> None:
        """Later than every job before it, also when the clock was set back."""
        latest = 0
        for name in self.ids()[:1]:
            with contextlib.suppress(OSError):
                latest = os.stat(self.path / "jobs" / name / "created").st_mtime_ns
        moment = max(time.time_ns(), latest + 1000)
        marker.touch()
        os.utime(marker, ns=(moment, moment))

    def remove(self, job: Job) -> None:
        """Takes a job whose processes are gone out of sight at once, then removes its files."""
        self._sweep()
        grave = self.path / "trash" / f"{job.id}-{os.getpid()}"
        os.rename(job.path, grave)
        (self.path / "active" / job.id).unlink(missing_ok=True)
        _remove_tree(grave)

    def _sweep(self) -> None:
        """Removes what a command that was killed was making or removing."""
        for entry in (self.path / "trash").iterdir():
            owner = entry.name.rpartition("-")[2]
            if not (owner.isdigit() and os.path.exists(f"/proc/{owner}")):
                _remove_tree(entry)
