"""One job that something is done to: brought into a moment of its life, and looked through at its end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import yaml

from ffdl.engines.base import EngineError
from ffdl.engines.status import JobStatus
from ffdl.learner import contract
from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.kubernetes_api import ApiError, Object
from tests.behaviours.stores import fill, store, tree
from tests.behaviours.user import Blocks
from tests.cluster.cluster import Cluster
from tests.cluster.components import S3_KEYS
from tests.faults.throttle import WITHOUT, Throttle
from tests.faults.watcher import Watcher, alive, read_steps

JOB = Path(__file__).parent / "job"
STEPS, PACE = 900, 0.1
SETTLED = 30  # steps after which a job counts as learning: a checkpoint is committed by then
MEGABYTES = 24  # of ballast, and of training data
SLOW = 1e6  # bytes a second, so that moving those takes a while
OLD_ENOUGH = 12.0  # seconds: Argo makes a pod that goes in its first 10 seconds again, without an attempt, and quicker
CODE = 3  # of a job that fails on purpose
COMES = 120.0  # seconds that a moment has to come, and a job to end


class Lost(AssertionError):  # noqa: N818
    """Something of a job is not there that should be."""


class Moment(Enum):
    """When in a job's life something is done to it."""

    DOWNLOADING = "downloading"
    LEARNING = "learning"
    STORING = "storing"
    FAILING = "storing after a failure"


@dataclass
class Trial:
    """A job of `user`'s. `expected` is the model of an undisturbed one; None: this is it."""

    cluster: Cluster
    user: ClusterUser
    throttle: Throttle
    moment: Moment
    expected: str | None = None
    job: str = ""
    model: str = ""  # the digest of what it made
    notes: list[str] = field(default_factory=list)
    scripts: set[int] = field(default_factory=set)  # the learner's processes before the fault
    movers: set[int] = field(default_factory=set)  # those that move bytes, before the fault
    epoch: int = 0  # the helper's before the fault
    _watcher: Watcher | None = None

    # --- what it sees -------------------------------------------------------------------------------------------------

    @property
    def watcher(self) -> Watcher:
        if self._watcher is None:
            self._watcher = Watcher(self.cluster.place, self.job, self.user.volume(self.job))
        return self._watcher

    def status(self) -> JobStatus | None:
        """None while the cluster gives none."""
        with contextlib.suppress(EngineError):
            return self.user.engine.status(self.job)
        return None

    def over(self) -> bool:
        status = self.status()
        return status is not None and status.terminal

    def report(self) -> Object:
        """The helper's last one, as the cluster has it; empty while there is none to be had."""
        with contextlib.suppress(ApiError, OSError, KeyError, ValueError):
            found = self.user.api.get("configmaps", f"{self.job}-status")
            report: Object = json.loads(found["data"]["report"])
            return report
        return {}

    def pod(self, *roles: str) -> str:
        """The name of a pod of one of those roles that runs or will run."""
        found = [pod["metadata"]["name"] for role in roles for pod in self.user.alive(self.job, role)]
        if not found:
            raise AssertionError(f"no pod of {', '.join(roles)} is there")
        return str(found[0])

    def wait(self, condition: Callable[[], object], what: str, within: float = COMES, every: float = 0.2) -> None:
        """Raises AssertionError."""
        limit = time.monotonic() + within
        while not condition():
            if time.monotonic() > limit:
                raise AssertionError(f"{what}: not within {within:.0f} s")
            time.sleep(every)

    # --- its life -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Submits the job and returns in the moment."""
        slow_steps = self.moment in (Moment.LEARNING, Moment.DOWNLOADING)
        env = {"STEPS": str(STEPS), "PACE": str(PACE if slow_steps else 0), "MEGABYTES": str(MEGABYTES)}
        if self.moment is Moment.FAILING:
            env["CODE"] = str(CODE)
        data, results = f"data-{uuid.uuid4().hex[:8]}", f"results-{uuid.uuid4().hex[:8]}"
        for bucket in (data, results):
            self._bucket(bucket).mkdir()
        self._stores = (data, results)
        fill(self._bucket(data), ["samples"], MEGABYTES << 20, random.Random(7))
        self.throttle.rate = SLOW if self.moment is Moment.DOWNLOADING else WITHOUT
        self.job = self.user.train(self._folder(env, data, results))
        if self.moment is Moment.DOWNLOADING:
            self._until_bytes_move("download")
            return
        learns = SETTLED if self.moment is Moment.LEARNING else 1
        self.wait(lambda: self.watcher.last_step() >= learns, "learning")
        if self.moment is Moment.LEARNING:
            self.wait(lambda: self.report().get("learners", {}).get("joined"), "the helper's report")
            self._until_old("script")
            self.scripts, self.epoch = set(self.watcher.processes("script")), self.watcher.epoch()
            return
        self.throttle.rate = SLOW
        self._until_bytes_move("store")

    def _until_bytes_move(self, program: str) -> None:
        self.wait(lambda: self.watcher.processes(program), f"the process of {program}")
        passed = self.throttle.passed
        self._until_old(program)
        if self.throttle.passed == passed or not self.watcher.processes(program):
            raise AssertionError(f"{program} moves no bytes")
        self.movers = set(self.watcher.processes(program))

    def _until_old(self, program: str) -> None:
        """Until its pod is none that has just been started."""
        began = min(self.watcher.processes(program).values(), default=float("inf"))
        self.wait(lambda: time.time() - began > OLD_ENOUGH, f"the age of {program}")

    def moving(self) -> bool:
        """Whether a process that moved bytes at the moment of the fault still lives."""
        return any(map(alive, self.movers))

    def hurry(self, road: bool = False) -> None:
        """From here on nothing slows the job down, or nothing on the road to its stores."""
        self.throttle.rate = WITHOUT
        if not road:
            with contextlib.suppress(FileNotFoundError):  # the job is over, its volume gone
                (self.watcher.volume / "job" / "gate").touch()

    def finish(self) -> None:
        """The job's end, and a look at all that it left. Raises Lost, AssertionError."""
        self.hurry()
        self.wait(self.over, "the end of the job", 2 * COMES, 0.5)
        status = self.status()
        assert status is not None
        self.notes.append(f"{status.attempts} attempts of the learner")
        if self.moment is Moment.FAILING:
            _expect(status.state == "FAILED" and status.exit_code == CODE, f"{status.state}: {status.reason}")
            _expect(f"exited with code {CODE}" in status.reason, f"the job's own reason is lost: {status.reason}")
        else:
            _expect(status.state == "COMPLETED", f"{status.state}: {status.reason}")
        self._look_through(self._bucket(self._stores[1]) / self.job)

    def _look_through(self, results: Path) -> None:
        try:
            record = json.loads((results / contract.RECORD_FILE).read_text())
        except OSError:
            raise Lost(f"no {contract.RECORD_FILE} in the results: {sorted(tree(results))}") from None
        missing = [
            entry["name"]
            for entry in record["files"]
            if not (results / entry["name"]).is_file() or (results / entry["name"]).stat().st_size != entry["size"]
        ]
        _expect(not missing, f"files of the record that are not as it says: {missing}")
        _expect((results / "ballast").stat().st_size == MEGABYTES << 20, "the ballast is not whole")
        seen = json.loads((results / "data.json").read_text())
        _expect(seen == tree(self._bucket(self._stores[0])), "the job saw other training data")
        logs = results / "learner-1"
        gaps = set(range(1, STEPS + 1)) - {step for _, step in read_steps(logs / contract.METRICS_FILE)}
        _expect(not gaps, f"{len(gaps)} steps are in no log, the first is {min(gaps, default=0)}")
        _expect("done" in (logs / contract.TRAINING_LOG).read_text().splitlines(), "the log has no end")
        made = (results / "model.npy").read_bytes() + (results / "ballast").read_bytes()
        self.model = hashlib.sha256(made).hexdigest()
        _expect(self.expected in (None, self.model), "the model is not that of an undisturbed run")

    def remove(self) -> list[str]:
        """`ffdl delete`; returns what is left of the job."""
        self.user.ffdl("delete", self.job, "-y", timeout=180)
        left = self.user.leftovers()
        if self._watcher is not None and self._watcher.volume.exists():
            with contextlib.suppress(AssertionError):
                self.wait(lambda: not self.watcher.volume.exists(), "the end of the volume", 30)
            left += [str(self.watcher.volume)] * self.watcher.volume.exists()
        return left

    # --- what it is made of -------------------------------------------------------------------------------------------

    def _bucket(self, name: str) -> Path:
        return self.cluster.place.run / "s3" / name

    def _folder(self, env: dict[str, str], data: str, results: str) -> Path:
        folder = self.user.folder / uuid.uuid4().hex[:8]
        folder.mkdir()
        (folder / "train.py").write_bytes((JOB / "train.py").read_bytes())
        login = dict(zip(("user_name", "password"), S3_KEYS, strict=True))
        stores = store(self.throttle.endpoint, data, results, **login)
        manifest = {**yaml.safe_load((JOB / "manifest.yml").read_text()), "env": env, **stores}
        (folder / "manifest.yml").write_text(yaml.dump(manifest, Dumper=Blocks, allow_unicode=True))
        return folder


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Lost(otherwise)


@contextlib.contextmanager
def road(cluster: Cluster) -> Iterator[Throttle]:
    """The way from jobs to the cluster's S3 server."""
    host, _, port = cluster.place.s3.removeprefix("http://").partition(":")
    throttle = Throttle(cluster.place.host_address, (host, int(port)))
    try:
        yield throttle
    finally:
        throttle.close()
