"""A job's pods started by hand: agents and helpers as real processes, on folders that stand for its volumes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffdl.learner import contract

JOB_ID = "training-abcdefghij"
TOKEN = "a-token-of-the-job"
SHARED = ("/job", "/mnt/data", "/mnt/results", "/ffdl/config", "/ffdl/token", "/ffdl/results")
WAIT = 40.0  # seconds until a test gives up on a condition


class Talk:
    """One end of a connection between an agent and a helper, for which a test stands."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._lines = connection.makefile("rb")

    def say(self, message: dict[str, Any]) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of that type."""
        for line in self._lines:
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind:
                return message
        raise AssertionError(f"the other end hung up before it sent {kind}")

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


class Job:
    """A job's folders, and its pods started by hand: what an engine would do, as far as agent and helper can see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.control = self.shared / "ffdl/control"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.attempts: dict[int, int] = {}
        self.workflow: dict[str, Any] = {"metadata": {"annotations": {}}, "spec": {}}
        self.phases: dict[str, dict[str, Any]] = {}
        self.constants: dict[str, float] = {}
        self.cgroup: Path | None = None  # the memory cgroup that agents start in
        for path in (*SHARED, "/ffdl/helper", "/ffdl/journal", "/ffdl/control", "/job/model-code"):
            (self.shared / path[1:]).mkdir(parents=True, exist_ok=True)
        (self.shared / "ffdl/token/token").write_text(TOKEN + "\n")
        self._write_workflow()

    def configure(self, command: str, **changes: Any) -> None:
        """Writes job.json."""
        values: dict[str, Any] = {"name": "test", "framework": "custom", "framework_version": "x", "learners": 1}
        values |= {"cpus": 1.0, "gpus": 0.0, "memory": 1 << 30, "results": None, "halt_grace": 10.0}
        spec = contract.JobSpec(command=command, **(values | changes))
        (self.shared / "ffdl/config/job.json").write_text(spec.to_json())

    def script(self, name: str, text: str) -> str:
        """Puts a program among the training code and returns its path."""
        path = self.shared / "job/model-code" / name
        path.write_text(text)
        return str(path)

    def helper(self) -> subprocess.Popen[bytes]:
        return self._start("helper", "checkpoint", ("/ffdl/helper", "/ffdl/journal", "/ffdl/control"), {})

    def agent(self, index: int = 0, **environment: str) -> subprocess.Popen[bytes]:
        attempt = self.attempts.get(index, -1) + 1
        self.attempts[index] = attempt
        name = f"learner({index}:{index})"
        self.phases[name] = {"displayName": name, "type": "Retry", "phase": "Running"}
        self.phases[f"{name}({attempt})"] = {"displayName": f"{name}({attempt})", "type": "Pod", "phase": "Running"}
        self._write_status()
        variables = {contract.INDEX_ENV: str(index), contract.ATTEMPT_ENV: str(attempt), **environment}
        return self._start(f"learner{index}-{attempt}", "agent", ("/ffdl/helper",), variables)

    def waits(self, index: int = 0) -> None:
        """The learner's next attempt has a pod, which waits for room."""
        attempt = self.attempts[index] + 1
        name = f"learner({index}:{index})({attempt})"
        self.phases[name] = {"displayName": name, "type": "Pod", "phase": "Pending", "templateName": "learner"}
        self._write_status()

    def ended(self, index: int = 0, timeout: float = WAIT) -> int:
        """The exit code of the learner's last attempt, and the Workflow's status as an engine would have it then."""
        process = self.processes[f"learner{index}-{self.attempts[index]}"]
        code = process.wait(timeout)
        name = f"learner({index}:{index})"
        self.phases[f"{name}({self.attempts[index]})"]["phase"] = "Failed" if code else "Succeeded"
        if code == 0:
            self.phases[name]["phase"] = "Succeeded"
        self._write_status()
        return code

    def suspend(self, on: bool = True) -> None:
        self.workflow["spec"]["suspend"] = on
        self._write_workflow()

    def annotate(self, name: str, value: str) -> None:
        self.workflow["metadata"]["annotations"][name] = value
        self._write_workflow()

    def fail_step(self, name: str) -> None:
        self.phases[name] = {"displayName": name, "type": "Retry", "phase": "Failed"}
        self._write_status()

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.control / "requests").glob("*.json"))]

    def reasons(self) -> list[str]:
        asked = [request for request in self.requests() if request["kind"] == contract.REQUEST_ANNOTATE]
        return [request["annotations"][contract.ANNOTATION_REASON] for request in asked]

    def report(self) -> dict[str, Any]:
        path = self.control / contract.CONTROL_REPORT
        return json.loads(path.read_text()) if path.exists() else {}

    def log(self, index: int = 0) -> str:
        path = self.shared / f"job/logs/learner-{index + 1}/training-log.txt"
        return path.read_text() if path.exists() else ""

    def job_file(self, name: str) -> Path:
        return self.shared / "job" / name

    def address(self) -> dict[str, Any]:
        path = self.shared / "ffdl/helper/address.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(10)

    def _start(
        self, pod: str, module: str, mounts: tuple[str, ...], environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        number = sum(name.startswith(pod) for name in self.processes)
        pod = f"{pod}.{number}" if number else pod
        root = self.folder / "pods" / pod
        for path in (*SHARED, *mounts):
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / path[1:]).symlink_to(self.shared / path[1:])
        changes = "".join(f"{name} = {value}; " for name, value in self.constants.items())
        program = (
            "import sys; from ffdl.learner import contract; "
            f"from ffdl.steps import checkpoint, coordinator, {module}; {changes}"
        )
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FFDL_")},
            contract.ROOT_ENV: str(root),
            contract.JOB_ID_ENV: JOB_ID,
            contract.POD_IP_ENV: "127.0.0.1",
            "ARGO_PROGRESS_FILE": str(root / "progress"),
            **environment,
        }
        with open(self.folder / f"{pod}.log", "wb") as output:
            command = [sys.executable, "-c", f"{program}sys.exit({module}.main())"]
            if self.cgroup is not None and module == "agent":
                command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.cgroup / "cgroup.procs"), *command]
            process = subprocess.Popen(command, env=variables, stdout=output, stderr=output, cwd="/")
        name = pod if pod not in self.processes else f"{pod}.{number}"
        self.processes[name] = process
        return process

    def _write_workflow(self) -> None:
        contract.atomic_write(str(self.control / "workflow.json"), json.dumps(self.workflow).encode())

    def _write_status(self) -> None:
        nodes = {name: {"id": name, **node} for name, node in self.phases.items()}
        contract.atomic_write(str(self.control / "status.json"), json.dumps({"nodes": nodes}).encode())


def until(condition: Callable[[], Any], what: str = "", timeout: float = WAIT) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never came: {what or condition}"
        time.sleep(0.02)
    return value


TRAIN = """
import sys, time
from ffdl import learner
steps = int(sys.argv[1])
with learner.session() as job:
    state = job.restore() or {"step": 0, "sum": 0}
    print("from", state["step"], flush=True)
    for step in range(state["step"], steps):
        state["sum"] = (state["sum"] * 31 + step) % 1000003
        time.sleep(0.01)
        state["step"] = step + 1
        job.step(step + 1, of=steps, state=state, loss=1.0 / (step + 1))
    print("sum", state["sum"], flush=True)
"""


def expected_sum(steps: int) -> int:
    total = 0
    for step in range(steps):
        total = (total * 31 + step) % 1000003
    return total
