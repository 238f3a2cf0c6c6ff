"""A resolved template -> a PodSpec: images become Pythons, volumes become folders, references become values."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ...learner import contract
from . import artifacts, outputs, sandbox, staging
from .environment import NAMESPACE, PROGRESS, Environment, expand, is_ours
from .leases import Lease, quantity
from .objects import CannotStartError, Objects
from .operator import PodRequest
from .operator.containers import mains
from .operator.durations import duration
from .pod import EXEC, HTTP, MAIN, TCP, Artifact, Container, Mount, Output, PodSpec, Probe, Volume
from .podfiles import under_mount
from .state import Home, Job
from .volumes import Volumes

_TEMPORARY = "/tmp"


def build(
    home: Home,
    job: Job,
    request: PodRequest,
    address: str,
    lease: Lease,
    submitter: Mapping[str, Any],
    *,
    plain: bool,
) -> PodSpec:
    """The PodSpec of one attempt. `plain`: of a Workflow that is no training job, whose containers know nothing of us.

    Raises CannotStartError for a volume, ConfigMap or Secret that isn't there.
    """
    try:
        return _Builder(home, job, request, address, lease, submitter, plain).spec()
    except ValueError as error:  # a number that a reference has become, and that is none
        raise CannotStartError(str(error)) from None


class _Builder:
    def __init__(
        self,
        home: Home,
        job: Job,
        request: PodRequest,
        address: str,
        lease: Lease,
        submitter: Mapping[str, Any],
        plain: bool,
    ) -> None:
        self._home, self._job, self._request, self._lease = home, job, request, lease
        self._template, self._address, self._plain = request.template, address, plain
        self._patch = self._template.get("podSpecPatch") or {}
        self._hostname = str(self._patch.get("hostname") or request.pod_name)
        fields = {
            "metadata.name": request.pod_name,
            "metadata.namespace": NAMESPACE,
            "status.podIP": address,
            "status.hostIP": "127.0.0.1",
            "spec.nodeName": os.uname().nodename,
            "spec.serviceAccountName": self._template.get("serviceAccountName") or "default",
        }
        metadata = self._template.get("metadata") or {}
        self._environment = Environment(Objects(home, job), submitter, fields, metadata)
        self._volumes = Volumes(home, job, self._template.get("volumes") or [], overlay=not plain)
        self._namespaces = sandbox.available() == sandbox.NAMESPACES

    def spec(self) -> PodSpec:
        several = [self._container(name, container) for name, container in mains(self._template)]
        outer = self._template
        init = [self._container(c.get("name", f"init-{i}"), c) for i, c in enumerate(outer.get("initContainers") or [])]
        sidecars = [self._container(c["name"], c) for c in outer.get("sidecars") or []]
        return PodSpec(
            name=self._request.pod_name,
            containers=several,
            init=init,
            sidecars=sidecars,
            volumes=self._volumes.used,
            outputs=[
                Output(p["name"], p["valueFrom"]["path"], p["valueFrom"].get("default"))
                for p in (outer.get("outputs") or {}).get("parameters") or []
                if (p.get("valueFrom") or {}).get("path")
            ],
            artifacts=[self._artifact(a, artifacts.TAR) for a in (outer.get("outputs") or {}).get("artifacts") or []],
            inputs=[self._artifact(a, artifacts.AUTO) for a in (outer.get("inputs") or {}).get("artifacts") or []],
            result=self._request.wants_result,
            hostname=self._hostname,
            address=self._address,
            hosts=str(self._job.path / "hosts"),
            grace=float(self._patch.get("terminationGracePeriodSeconds", 30)),
            active_deadline=self._request.active_deadline,
            deadline=self._request.deadline,
            # other jobs', and this one's Secrets
            hidden=[str(self._home.path / name) for name in ("jobs", "claims", "configmaps", "secrets")],
        )

    def _container(self, name: str, container: Mapping[str, Any]) -> Container:
        env = self._environment.of(name, container)
        env["ARGO_NODE_ID"] = self._request.node_id
        env.setdefault("HOSTNAME", self._hostname)
        argv = [expand(part, env) for part in [*(container.get("command") or []), *(container.get("args") or [])]]
        if is_ours(container) and argv[0] == "python3":
            argv[0] = sys.executable
        wanted = [self._volumes.mount(mount, env) for mount in container.get("volumeMounts") or []]
        mounts = [mount for mount in wanted if mount is not None]
        cwd = container.get("workingDir") or "/"
        is_main = name == MAIN and any(name == each for each, _ in mains(self._template))
        if is_main:
            argv += self._script(mounts)
            self._inputs(mounts)
        if self._template.get("automountServiceAccountToken"):
            mounts.append(self._volumes.add("control", Volume("folder", str(self._job.control)), contract.CONTROL_DIR))
        if self._plain:
            self._own_places(name, mounts, cwd, env.get("PATH", ""))
        if is_main and (self._template.get("outputs") or {}).get("artifacts"):
            mounts.append(self._volumes.add(outputs.VOLUME, Volume("empty"), outputs.PLACE))
        resources = container.get("resources") or {}
        if is_main or self._plain:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in self._gpus(resources))
        memory = (resources.get("limits") or {}).get("memory")
        retries = (self._template.get("containerSet") or {}).get("retryStrategy") or {}
        return Container(
            name=name,
            argv=argv,
            env=env,
            cwd=cwd,
            mounts=mounts,
            memory=int(quantity(memory)) if memory is not None else None,
            after=container.get("dependencies") or [],
            tries=max(1, int(retries.get("retries") or 1)),
            pause=duration(retries.get("duration") or "0"),
            probe=_probe(container, env) if self._template.get("daemon") else None,
        )

    def _own_places(self, name: str, mounts: list[Mount], cwd: str, path: str) -> None:
        """What an image would give a container for itself: /tmp and its working folder; and where to tell progress."""
        known = Container(name, [], mounts=mounts)
        if under_mount(known, PROGRESS) is None:
            mounts.append(self._volumes.add("_run", Volume("empty"), contract.RUN_DIR))
        if not self._namespaces:  # no path is a container's own
            return
        outside = [place for place in path.split(os.pathsep) if place.startswith(f"{_TEMPORARY}/")]
        if under_mount(known, _TEMPORARY) is None and not outside:  # whose Python lies there would lose it
            mounts.append(self._volumes.add(f"_tmp.{name}", Volume("empty"), _TEMPORARY))
        if under_mount(Container(name, [], mounts=mounts), cwd) is None and not os.path.isdir(cwd):
            mounts.append(self._volumes.add(f"_cwd.{name}", Volume("empty"), cwd))

    def _script(self, mounts: list[Mount]) -> list[str]:
        """The last argument of a script's command: the file that holds its source."""
        source = (self._template.get("script") or {}).get("source")
        if not source:
            return []
        volume = Volume("empty", files={os.path.basename(staging.SCRIPT_PATH): source})
        mounts.append(self._volumes.add(staging.SCRIPT, volume, staging.SCRIPT_DIR))
        return [staging.SCRIPT_PATH]

    def _inputs(self, mounts: list[Mount]) -> None:
        users = Container(MAIN, [], mounts=list(mounts))
        for artifact in (self._template.get("inputs") or {}).get("artifacts") or []:
            if _located(artifact) and under_mount(users, artifact["path"]) is None:
                own = self._volumes.add(staging.INPUTS, Volume("empty"), artifact["path"], artifact["name"])
                mounts.append(own)

    def _artifact(self, artifact: Mapping[str, Any], archive: str) -> Artifact:
        """An input or output artifact, packed as `archive` if it doesn't say; its key leads to a place in the job's
        folder."""
        key, given = (artifact.get("s3") or {}).get("key"), artifact.get("archive") or {}
        level = (given.get("tar") or {}).get("compressionLevel")
        return Artifact(
            name=artifact["name"],
            path=artifact["path"],
            stored=str(self._job.artifacts / key) if key else "",
            archive=next((kind for kind in artifacts.KINDS if given.get(kind) is not None), archive),
            level=-1 if level is None else int(level),
            optional=bool(artifact.get("optional")),
            data=(artifact.get("raw") or {}).get("data"),
            mode=artifact.get("mode"),
            recurse=bool(artifact.get("recurseMode")),
        )

    def _gpus(self, resources: Mapping[str, Any]) -> list[int]:
        """A pod's own, or the same share of the job's lease at every attempt: by the pod's index among its like."""
        wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        count = sum(int(quantity(value)) for name, value in wanted.items() if name.endswith("/gpu"))
        if self._plain:
            return self._lease.gpus[:count]
        parameters = (self._template.get("inputs") or {}).get("parameters") or []
        index = next((int(p["value"]) for p in parameters if p["name"] == "index" and str(p["value"]).isdigit()), 0)
        return self._lease.gpus[index * count : (index + 1) * count]


def _probe(container: Mapping[str, Any], env: Mapping[str, str]) -> Probe | None:
    """The readiness probe of a container; only those of daemons are ever looked at."""
    probe = container.get("readinessProbe")
    if not probe:
        return None
    names = {port["name"]: port["containerPort"] for port in container.get("ports") or [] if port.get("name")}
    asked: Mapping[str, Any] = probe.get("httpGet") or probe.get("tcpSocket") or {}
    return Probe(
        kind=HTTP if probe.get("httpGet") else TCP if probe.get("tcpSocket") else EXEC,
        host=asked.get("host") or "",
        port=int(names.get(asked.get("port"), asked.get("port") or 0)),
        path=asked.get("path") or "/",
        headers={header["name"]: header.get("value") or "" for header in asked.get("httpHeaders") or []},
        tls=asked.get("scheme") == "HTTPS",
        command=[expand(part, env) for part in (probe.get("exec") or {}).get("command") or []],
        delay=float(probe.get("initialDelaySeconds") or 0),
        period=float(probe.get("periodSeconds") or 10),
        timeout=float(probe.get("timeoutSeconds") or 1),
        successes=int(probe.get("successThreshold") or 1),
    )


def _located(artifact: Mapping[str, Any]) -> bool:
    """Whether it is known where an input artifact comes from; an optional one may have no source."""
    return any(artifact.get(kind) is not None for kind in ("s3", "raw"))
