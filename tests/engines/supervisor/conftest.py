"""Real pods for the tests of the supervisor, and a look, after each test, at what they left on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ffdl.engines.local import cgroup, processes, sandbox, supervisor
from ffdl.engines.local.pod import Container, Mount, Output, PodObservation, PodSpec, Volume

PATIENCE = 60.0  # seconds


def await_(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.002)


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


class Pods:
    """Makes pods below `folder`. Their names carry `token`, by which everything of theirs can be found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = os.urandom(6).hex()
        self.shared = folder / "shared"  # at /job in every container
        self.shared.mkdir()
        self.volumes = {"shared": Volume("folder", str(self.shared)), "run": Volume("empty")}
        self.mounts = [Mount("shared", "/job"), Mount("run", "/ffdl/run")]
        self._made: list[Path] = []

    def container(self, script: str | list[str], name: str = "main", cwd: str = "/") -> Container:
        """`$J` and `$R` are /job and /ffdl/run, wherever they are."""
        argv = (
            ["/bin/sh", "-c", f"J=$FFDL_ROOT/job R=$FFDL_ROOT/ffdl/run; {script}"]
            if isinstance(script, str)
            else script
        )
        env = {"PATH": "/usr/bin:/bin", "ARGO_PROGRESS_FILE": "/ffdl/run/progress"}
        return Container(name, argv, env, cwd, self.mounts)

    def make(
        self,
        script: str | list[str],
        init: dict[str, str] | None = None,
        outputs: list[Output] | None = None,
        cwd: str = "/",
        **more: object,
    ) -> Path:
        pod = self.folder / f"pod-{len(self._made)}"
        pod.mkdir()
        self._made.append(pod)
        main = self.container(script, cwd=cwd)
        spec = PodSpec(
            name=f"{pod.name}-{self.token}",
            containers=[replace(main, memory=more.pop("memory", None)), *more.pop("beside", [])],
            init=[self.container(text, name) for name, text in (init or {}).items()],
            volumes=self.volumes,
            outputs=outputs or [],
            **{"grace": PATIENCE, **more},
        )
        (pod / "pod.json").write_text(spec.to_json())
        return pod

    def start(self, *args: object, **more: object) -> Path:
        pod = self.make(*args, **more)
        supervisor.launch(pod)
        return pod

    def end(self, pod: Path, launching: bool = False) -> PodObservation:
        """Waits for the pod's end; `launching` it, as a runner does, whenever it turns out not to have been started."""
        seen: list[PodObservation | None] = []

        def ended() -> bool:
            seen.append(supervisor.observe(pod))
            if seen[-1] is None and launching:
                supervisor.launch(pod)
            return seen[-1] is not None and seen[-1].ended

        await_(ended, f"the end of {pod.name}")
        assert seen[-1] is not None
        return seen[-1]

    def run(self, *args: object, **more: object) -> PodObservation:
        return self.end(self.start(*args, **more))

    def wait_for(self, name: str) -> str:
        """Waits for user code to write something into the file `name` of the shared folder."""
        path = self.shared / name
        await_(lambda: path.exists() and path.stat().st_size, name)
        return path.read_text()

    def log(self, pod: Path, name: str = "main.log") -> str:
        """A log without its times."""
        return "".join(line.split(" ", 1)[1] for line in (pod / name).read_text().splitlines(keepends=True))

    @staticmethod
    def await_(condition: Callable[[], object], what: str) -> None:
        """Waits, within a bound, until `condition` holds; `what` is named if it never does."""
        await_(condition, what)

    def pids(self, pod: Path) -> dict[str, int]:
        """Supervisor, first process and main of a pod whose user code runs."""
        await_(lambda: (pod / "state.json").exists(), "state.json")
        started, state = (json.loads((pod / name).read_text()) for name in ("started", "state.json"))
        container = list(state["containers"].values())[-1]
        return {
            "supervisor": started["supervisor"]["pid"],
            "first": container["first"]["pid"],
            "main": container["main"]["pid"],
        }

    def processes(self) -> list[int]:
        """Living processes of these pods: with their mark, or with a file of theirs open."""
        return [p.pid for p in processes.everything() if p.alive and self._is_ours(p.pid)]

    def marked(self) -> list[int]:
        """Of those, the ones that run user code or what it started. None may be left when a pod has ended."""
        return [pid for pid in self.processes() if self.token in _environment(pid)]

    def _is_ours(self, pid: int) -> bool:
        if pid == os.getpid():
            return False
        if self.token in _environment(pid):
            return True
        try:
            open_files = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            return False
        return any(name.startswith(str(self.folder)) for name in open_files)

    def cgroups(self) -> list[str]:
        return [path for path, _, _ in os.walk("/sys/fs/cgroup") if self.token in path]

    def mounts_seen(self) -> list[str]:
        return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.folder) in line]

    def assert_nothing_left(self) -> None:
        await_(lambda: not self.processes(), f"the end of processes {self.processes()}")
        assert self.mounts_seen() == []
        assert self.cgroups() == []

    def close(self) -> None:
        for pod in self._made:
            supervisor.terminate(pod, force=True)
        for pod in self._made:
            self.end(pod)
            supervisor.cleanup(pod)
        self.assert_nothing_left()


@pytest.fixture(params=[sandbox.NAMESPACES, sandbox.NONE])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == sandbox.NAMESPACES and not sandbox._tried():
        pytest.skip("this kernel gives no namespaces here")
    monkeypatch.setenv(sandbox.SWITCH_ENV, request.param)
    return str(request.param)


@pytest.fixture
def pods(isolation: str) -> Iterator[Pods]:
    folder = Path(tempfile.mkdtemp(prefix="ffdl-test-"))
    made = Pods(folder)
    try:
        yield made
        made.close()
    finally:
        for pid in made.processes():
            processes.send(pid, signal.SIGKILL)  # one may end with another
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["cgroup", "sampled"])
def accounting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How memory limits are kept."""
    if request.param == "sampled":
        monkeypatch.setenv(cgroup.SWITCH_ENV, "none")
    else:
        planned = cgroup.plan(f"probe-{os.getpid()}")  # other workers of the test run try it, too
        if planned is None or not planned.create(64 << 20):
            pytest.skip("no cgroup with a memory limit can be made here")
        planned.remove()
    return str(request.param)
