"""A user of a tenant on a cluster: jobs are pods, whose processes are seen on this machine, where the node is."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path

from ffdl.engines.argo.engine import ArgoEngine
from ffdl.learner import contract
from tests.behaviours.kubernetes_api import Api, ApiError, Object
from tests.behaviours.tenant import Tenant
from tests.behaviours.user import User

OURS = (
    "workflows", "pods", "configmaps", "secrets", "services", "persistentvolumeclaims", "workflowtaskresults",
)  # fmt: skip
POD_OF_A_PROCESS = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f_-]{27})")
EXECUTOR = "argoexec"  # Argo's own, the first process of each of its containers
ARGUMENTS = {
    "supervisor": "emissary",
    "learner": "train.py",
    "server": "ffdl.learner.serving",
    "agent": "ffdl.steps.agent",
    "helper": "ffdl.steps.checkpoint",
    "download": "ffdl.steps.download",
    "store": "ffdl.steps.store_results",
}
CLEANED_UP_WITHIN = 60.0  # seconds that the cluster's own garbage collection gets


class ClusterUser(User):
    """Their commands have the rights of a tenant's user; `api` looks on as the administrator."""

    engine_name = "argo"
    image = "localhost/debian:bookworm"
    pause = 0.25
    pace = "0.3"
    soon = "15s"

    def __init__(self, folder: Path, tenant: Tenant) -> None:
        super().__init__(folder)
        self.tenant = tenant
        self.env |= {"KUBECONFIG": str(tenant.kubeconfig), "FFDL_NAMESPACE": tenant.namespace}
        self._downloads = folder / "downloads"
        self._volumes: dict[str, Path] = {}
        self._secrets: list[str] = []

    @property
    def api(self) -> Api:
        return self.tenant.api

    @property
    def engine(self) -> ArgoEngine:
        return ArgoEngine(self.tenant.namespace, kubeconfig=str(self.tenant.kubeconfig))

    def has_image(self, name: str) -> bool:
        return self.tenant.has_image(name)

    def results(self, job: str) -> Path:
        folder = self._downloads / job
        if not folder.exists():
            done = self.ffdl("download", job, "-d", str(folder), code=None)
            if done.returncode:
                return folder
            if not self.engine.status(job).terminal:  # there will be more
                folder = folder.rename(self._downloads / f"{job}-{time.monotonic_ns()}")
        (found,) = folder.iterdir()
        return found

    def volume(self, job: str) -> Path:
        deadline = time.monotonic() + 60
        while job not in self._volumes:
            with contextlib.suppress(ApiError):
                claim = self.api.get("persistentvolumeclaims", f"{job}-job")
                if name := claim["spec"].get("volumeName"):
                    spec = json.loads(self.api.call("GET", f"api/v1/persistentvolumes/{name}"))["spec"]
                    self._volumes[job] = Path((spec.get("hostPath") or spec["local"])["path"])
                    break
            assert time.monotonic() < deadline, f"{job} got no volume\n{self.story()}"
            time.sleep(self.pause)
        return self._volumes[job]

    def secret(self, name: str, values: Mapping[str, str]) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.api.create("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
        self._secrets.append(name)

    # --- pods and their processes -------------------------------------------------------------------------------------

    def pods(self, job: str = "", role: str = "") -> list[Object]:
        """Those of this user's jobs, finished ones too."""
        labels = f"{contract.LABEL_JOB}={job}" if job else contract.LABEL_JOB
        return self.api.list("pods", labels + (f",{contract.LABEL_ROLE}={role}" if role else ""))

    def alive(self, job: str = "", role: str = "") -> list[Object]:
        """Those that run or will run; pods that carry files for a command are none of a job's."""
        unfinished = [pod for pod in self.pods(job, role) if pod["status"].get("phase") in ("Pending", "Running")]
        return [pod for pod in unfinished if pod["metadata"]["labels"].get(contract.LABEL_ROLE) != "carrier"]

    def running(self) -> list[str]:
        return [f"{pod['metadata']['name']} {pod['status']['phase']}" for pod in self.alive()]

    def held(self) -> list[str]:
        return self.running()  # what pods ask for is held until they have finished

    def processes(self) -> dict[int, str]:
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in self.pods()}
        mine = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                found = POD_OF_A_PROCESS.search((entry / "cgroup").read_text())
                pod = names.get(found[1].replace("_", "-")) if found else None
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if pod is not None and state != "Z":
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    mine[int(entry.name)] = f"{(entry / 'comm').read_text().strip()}: {line}"
        return mine

    def pids(self, role: str) -> list[int]:
        wanted, executor = ARGUMENTS[role], role == "supervisor"
        found = self.processes().items()
        return [pid for pid, said in found if said.startswith(EXECUTOR) == executor and wanted in said]

    def delete_pod(self, job: str, role: str, force: bool = False) -> str:
        """Deletes a pod of that role that runs; returns its name."""
        self.wait_for(lambda: bool(self.alive(job, role)), f"a pod of {role}")
        name: str = self.alive(job, role)[0]["metadata"]["name"]
        self.api.delete("pods", name, grace=0 if force else None)
        return name

    # --- what is there ------------------------------------------------------------------------------------------------

    def record(self, job: str) -> str:
        kinds = [kind for kind in OURS if kind != "secrets"] + ["events"]
        return json.dumps([self.api.list(kind) for kind in kinds], ensure_ascii=False)

    def leftovers(self) -> list[str]:
        deadline = time.monotonic() + CLEANED_UP_WITHIN
        for name in self._secrets:
            self.api.delete("secrets", name)
        self._secrets.clear()
        while (left := self._of_jobs()) and time.monotonic() < deadline:
            time.sleep(self.pause)
        return left

    def _of_jobs(self) -> list[str]:
        left = []
        for kind in OURS:
            for found in self.api.list(kind):
                name, labels = found["metadata"]["name"], found["metadata"].get("labels") or {}
                if contract.LABEL_JOB in labels or name.startswith("training-"):
                    left.append(f"{kind}/{name}")
        volumes = json.loads(self.api.call("GET", "api/v1/persistentvolumes"))["items"]
        for claim in (volume["spec"].get("claimRef") or {} for volume in volumes):
            if claim.get("namespace") == self.tenant.namespace and claim["name"].startswith("training-"):
                left.append(f"volume of {claim['name']}")
        return left

    def story(self) -> str:
        parts = []
        for workflow in self.api.list("workflows", contract.LABEL_JOB):
            status = workflow.get("status") or {}
            said = {key: workflow["spec"].get(key) for key in ("suspend", "shutdown") if workflow["spec"].get(key)}
            parts.append(f"== {workflow['metadata']['name']} {status.get('phase')} {said} {status.get('message', '')}")
            parts.append(json.dumps(workflow["metadata"].get("annotations")))
            nodes = sorted((status.get("nodes") or {}).values(), key=lambda node: node.get("startedAt") or "")
            parts += [f"{n['name']} {n['type']} {n['phase']} {n.get('message', '')}" for n in nodes]
        for pod in self.pods():
            parts += self._story_of(pod)
        for config in self.api.list("configmaps", contract.LABEL_JOB):
            parts += [f"{config['metadata']['name']}: {text}" for text in (config.get("data") or {}).values()]
        events = sorted(self.api.list("events"), key=lambda event: event["metadata"]["creationTimestamp"])
        dull = ("Pulled", "Created", "Started", "WorkflowNodeRunning", "WorkflowNodeSucceeded")
        for event in [event for event in events if event.get("reason") not in dull][-40:]:
            parts.append(f"{event['involvedObject'].get('name')} {event.get('reason')}: {event.get('message')}")
        return "\n".join(parts)

    def _story_of(self, pod: Object) -> list[str]:
        name, status = pod["metadata"]["name"], pod["status"]
        states = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        told = [f"== {name} {status.get('phase')} {status.get('message', '')}"]
        for container in states:
            told.append(f"{container['name']}: {json.dumps(container.get('state'))}")
            with contextlib.suppress(ApiError):
                query = {"container": container["name"], "tailLines": "40"}
                said = self.api.call("GET", f"{self.api.path('pods', name)}/log", **query).splitlines()
                told += [line for line in said if "level=info" not in line.lower()][-20:]  # Argo's own say much
        return told
