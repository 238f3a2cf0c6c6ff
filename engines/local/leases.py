"""Leases on this machine's CPUs, memory and GPUs, over all jobs. A job gets all that it asks for at once, or waits.

A lease is a file `leases/<id>.json`, taken under one lock. Jobs that wait stand in line by the time they were
submitted: nobody overtakes, so a large job starts as soon as what runs before it has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..base import Damaged, EngineError
from ..nodes import is_training_job
from .state import Home, Job, locked, read_json, write_json

MACHINE_ENV = "FFDL_MACHINE"  # "cpus=4,memory=8GiB,gpus=2": what jobs may use of this machine; default all of it
LOCK = "leases.lock"  # not among the leases: those that wait for one look at what changes there
RIDES_ALONG = 0.1  # a pod that asks for less of a CPU than this, and no GPU, costs nothing: our own steps
SUBNETS = range(1, 4096)  # 127.0.0.0/8 in pieces of 4096 addresses
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True)
class Demand:
    """CPUs, bytes of memory, GPUs (by count)."""

    cpus: float = 0.0
    memory: int = 0
    gpus: int = 0

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.cpus + other.cpus, self.memory + other.memory, self.gpus + other.gpus)

    def times(self, count: int) -> Demand:
        return Demand(self.cpus * count, self.memory * count, self.gpus * count)


@dataclass(frozen=True)
class Lease:
    """What a job holds: amounts, GPU numbers, and its piece of 127.0.0.0/8."""

    cpus: float
    memory: int
    gpus: list[int] = field(default_factory=list)
    subnet: int = 1
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)  # whose sum it is, where pods take theirs one by one


def quantity(text: str | float) -> float:
    """A Kubernetes quantity as a number: `500m` -> 0.5, `64Mi` -> 67108864."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][0-9]+)?)(m|k|Ki|[MGT]i?)?", str(text))
    if not match:
        raise ValueError(f"{text!r} is not a quantity")
    number, unit = float(match.group(1)), match.group(2) or ""
    return number / 1000 if unit == "m" else number * _BYTES[unit]


def template_demand(template: Mapping[str, Any], small: bool = False) -> Demand:
    """What one pod of a template asks for; nothing for one that rides along, unless `small` ones count, too.

    Raises ValueError for what is no quantity.
    """
    parts = [template.get("container"), template.get("script"), *(template.get("sidecars") or [])]
    parts += (template.get("containerSet") or {}).get("containers") or []
    demand = sum((_container_demand(part) for part in parts if part), Demand())
    return demand if small or demand.cpus >= RIDES_ALONG or demand.gpus else Demand()


def _container_demand(container: Mapping[str, Any]) -> Demand:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    gpus = sum(int(quantity(value)) for name, value in amounts.items() if name.endswith("/gpu"))
    return Demand(quantity(amounts.get("cpu", 0)), int(quantity(amounts.get("memory", 0))), gpus)


def demand(workflow: Mapping[str, Any]) -> Demand:
    """What a training job's entrypoint asks for when everything in it that can run side by side does.

    A Workflow that is no training job does not start whole: nothing is held for it.
    """
    if not is_training_job(workflow):
        return Demand()
    templates = {template["name"]: template for template in workflow["spec"].get("templates", [])}

    def total(name: str, above: tuple[str, ...]) -> Demand:
        template = templates.get(name, {})
        if name in above:
            return Demand()
        children = template.get("dag", {}).get("tasks") or [s for group in template.get("steps", []) for s in group]
        result = template_demand(template)
        for child in children:
            result += total(child.get("template", ""), (*above, name)).times(_copies(child))
        return result

    return total(workflow["spec"]["entrypoint"], ())


def _copies(task: dict[str, Any]) -> int:
    if "withItems" in task:
        return len(task["withItems"])
    if "withParam" in task:
        with contextlib.suppress(ValueError):
            return len(json.loads(task["withParam"]))
    if "withSequence" in task:
        with contextlib.suppress(ValueError, KeyError):
            return int(task["withSequence"]["count"])
    return 1


@dataclass(frozen=True)
class Capacity:
    """What jobs may use of this machine."""

    cpus: float
    memory: int
    gpus: list[int]

    @classmethod
    def of_this_machine(cls) -> Capacity:
        """Its CPUs (those this process may run on), memory and NVIDIA GPUs, or what $FFDL_MACHINE says."""
        cpus, memory = float(len(os.sched_getaffinity(0))), _memory()
        gpus = [int(name[6:]) for name in os.listdir("/dev") if re.fullmatch(r"nvidia[0-9]+", name)]
        for part in filter(None, os.environ.get(MACHINE_ENV, "").split(",")):
            name, _, value = part.partition("=")
            try:
                if name == "cpus":
                    cpus = float(value)
                elif name == "memory":
                    memory = int(quantity(value.removesuffix("B")))
                elif name == "gpus":
                    gpus = list(range(int(value)))
                else:
                    raise ValueError
            except ValueError:
                words = f"{MACHINE_ENV} says {part!r:.50}; write it like cpus=4,memory=8GiB,gpus=0"
                raise EngineError(words) from None
        return cls(cpus, memory, sorted(gpus))

    def lacks(self, wanted: Demand) -> str:
        """Why `wanted` can never fit, or nothing."""
        if wanted.gpus > len(self.gpus):
            return f"needs {_gpus(wanted.gpus)}, this machine has {len(self.gpus)}"
        if wanted.cpus > self.cpus + 1e-9:
            return f"needs {wanted.cpus:g} CPUs, this machine has {self.cpus:g}"
        if wanted.memory > self.memory:
            return f"needs {_size(wanted.memory)} of memory, this machine has {_size(self.memory)}"
        return ""


def _memory() -> int:
    with open("/proc/meminfo") as stream:
        return int(stream.readline().split()[1]) * 1024


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _size(amount: int) -> str:
    return f"{amount / 2**30:.1f} GiB" if amount >= 2**30 else f"{amount / 2**20:.0f} MiB"


def acquire(home: Home, job: Job, wanted: Demand, capacity: Capacity) -> Lease | str:
    """A lease for all of `wanted`, or in one line why not yet: the job then stands in line until it has one."""
    folder = home.path / "leases"
    with locked(home.path / LOCK):
        mine = folder / f"{job.id}.json"
        if (held := _read(mine)) is not None:
            return held
        taken = _all(home, folder)
        free = _free(capacity, taken)
        if wanted != Demand() and (reason := _must_wait(home, job, wanted, free)):
            return reason
        subnets = {lease.subnet for lease in taken}
        lease = Lease(
            cpus=wanted.cpus,
            memory=wanted.memory,
            gpus=free.gpus[: wanted.gpus],
            subnet=next(number for number in SUBNETS if number not in subnets),
        )
        write_json(mine, asdict(lease))
        leave_line(home, job)
        return lease


def acquire_for_pod(home: Home, job: Job, pod: str, wanted: Demand, capacity: Capacity) -> list[int] | str:
    """The GPUs for one pod of a job that has a lease, which grows by what is `wanted`; or in one line why not yet: the
    job then stands in line."""
    folder = home.path / "leases"
    with locked(home.path / LOCK):
        mine = folder / f"{job.id}.json"
        lease = _read(mine) or Lease(0.0, 0)
        if pod in lease.pods:
            return list(lease.pods[pod]["gpus"])
        free = _free(capacity, _all(home, folder))
        if reason := _must_wait(home, job, wanted, free):
            return reason
        share = {"cpus": wanted.cpus, "memory": wanted.memory, "gpus": free.gpus[: wanted.gpus]}
        write_json(mine, asdict(_summed(lease, {**lease.pods, pod: share})))
        leave_line(home, job)
        return free.gpus[: wanted.gpus]


def release_pods(home: Home, job: Job, keep: Callable[[str], bool]) -> None:
    """Gives back what pods of the job hold, but for those to keep."""
    folder = home.path / "leases"
    with locked(home.path / LOCK):
        mine = folder / f"{job.id}.json"
        lease = _read(mine)
        if lease is None or all(map(keep, lease.pods)):
            return
        write_json(mine, asdict(_summed(lease, {name: share for name, share in lease.pods.items() if keep(name)})))


def _summed(lease: Lease, pods: dict[str, dict[str, Any]]) -> Lease:
    return Lease(
        cpus=sum(share["cpus"] for share in pods.values()),
        memory=sum(share["memory"] for share in pods.values()),
        gpus=[number for share in pods.values() for number in share["gpus"]],
        subnet=lease.subnet,
        pods=pods,
    )


def _free(capacity: Capacity, taken: list[Lease]) -> Capacity:
    used = {number for lease in taken for number in lease.gpus}
    return Capacity(
        capacity.cpus - sum(lease.cpus for lease in taken),
        capacity.memory - sum(lease.memory for lease in taken),
        [number for number in capacity.gpus if number not in used],
    )


def _must_wait(home: Home, job: Job, wanted: Demand, free: Capacity) -> str:
    """Why there is no room yet for what the job wants, which then stands in line; or nothing."""
    folder = home.path / "leases"
    ahead = _line_before(home, job, folder)
    lack = _lack(wanted, free)
    if not lack and not ahead:
        return ""
    line = folder / f"{job.id}.waits"
    if not line.exists():  # each change in this folder wakes all that stand in line
        write_json(line, asdict(wanted))
    if not lack:
        return f"{ahead} job{'s' if ahead > 1 else ''} ahead in line"
    return lack + (f"; {ahead} ahead in line" if ahead else "")


def _lack(wanted: Demand, free: Capacity) -> str:
    if wanted.gpus > len(free.gpus):
        return f"needs {_gpus(wanted.gpus)}, {len(free.gpus)} free"
    if wanted.cpus > free.cpus + 1e-9:
        return f"needs {wanted.cpus:g} CPUs, {max(0.0, free.cpus):g} free"
    if wanted.memory > free.memory:
        return f"needs {_size(wanted.memory)} of memory, {_size(int(max(0, free.memory)))} free"
    return ""


def _read(path: Path) -> Lease | None:
    """A damaged lease counts as none: it must not stand in the way of all other jobs."""
    with contextlib.suppress(Damaged, TypeError):
        value = read_json(path)
        return None if value is None else Lease(**value)
    return None


def _all(home: Home, folder: Path) -> list[Lease]:
    """Every lease whose job still exists."""
    leases = []
    for entry in folder.glob("*.json"):
        if not (home.path / "jobs" / entry.stem).is_dir():
            entry.unlink(missing_ok=True)
        elif (value := _read(entry)) is not None:
            leases.append(value)
    return leases


def _line_before(home: Home, job: Job, folder: Path) -> int:
    """How many jobs that were submitted earlier, and have a runner that waits, stand in line."""
    own = os.stat(job.path / "created").st_mtime_ns
    count = 0
    for entry in folder.glob("*.waits"):
        other = Job(home, entry.stem)
        if other.id == job.id:
            continue
        try:
            earlier = os.stat(other.path / "created").st_mtime_ns < own
        except FileNotFoundError:
            entry.unlink(missing_ok=True)
            continue
        count += earlier and other.has_runner()
    return count


def leave_line(home: Home, job: Job) -> None:
    """Takes the job out of the line, in which it may not be."""
    (home.path / "leases" / f"{job.id}.waits").unlink(missing_ok=True)


def held(home: Home, job: Job) -> Lease | None:
    """The lease that the job holds, if any."""
    return _read(home.path / "leases" / f"{job.id}.json")


def release(home: Home, job: Job) -> None:
    """Gives back what the job holds and takes it out of the line. Does nothing if it has neither."""
    folder = home.path / "leases"
    with locked(home.path / LOCK):
        for entry in folder.glob(f"{job.id}.*"):  # also what a runner that was killed was writing
            entry.unlink(missing_ok=True)
