"""A resolved template -> a PodSpec: images become Pythons, volumes become folders, references become values."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...learner import contract
from .leases import Lease, quantity
from .pod import Container, Mount, Output, PodSpec, Volume
from .state import Home, Job

OUR_IMAGES = ("ffdl-steps", "ffdl-agent")
NAMESPACE = "local"
PASSED_ON = re.compile(
    r"HOME|USER|LOGNAME|LANG|LC_.*|TZ|LD_LIBRARY_PATH|CUDA_HOME|CUDA_PATH|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
    r"|PIP_.*|(?i:https?_proxy|no_proxy|all_proxy)|FFDL_(ISOLATION|CGROUP|RETRY_SECONDS)"
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


class CannotStartError(Exception):
    """A pod that waits for something that isn't there, as a pod on a cluster would. The text says what."""


def store_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The submitter's own way to S3, for the steps of a job whose manifest names no credentials."""
    return {name: value for name, value in environ.items() if name.startswith("AWS_")}


def user_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What of the submitter's environment a learner's command gets, its Python's folder first on PATH."""
    kept = {name: value for name, value in environ.items() if PASSED_ON.fullmatch(name)}
    kept["PATH"] = f"{os.path.dirname(python)}:{environ.get('PATH') or SYSTEM_PATH}"
    kept[contract.PYTHON_ENV] = python
    if os.path.exists(os.path.join(os.path.dirname(python), os.pardir, "pyvenv.cfg")):
        kept["VIRTUAL_ENV"] = os.path.dirname(os.path.dirname(python))
    return kept


def build(
    home: Home,
    job: Job,
    template: Mapping[str, Any],
    pod_name: str,
    address: str,
    lease: Lease,
    environment: Mapping[str, Any],
) -> PodSpec:
    """The PodSpec of one attempt. Raises CannotStartError for a volume, ConfigMap or Secret that isn't there."""
    patch = template.get("podSpecPatch") or {}
    hostname = str(patch.get("hostname") or pod_name)
    builder = _Builder(home, job, template, pod_name, address, environment)
    main = builder.container("main", template["container"])
    init = [builder.container(c.get("name", f"init-{i}"), c) for i, c in enumerate(template.get("initContainers", []))]
    resources = template["container"].get("resources", {})
    wanted = {**resources.get("requests", {}), **resources.get("limits", {})}
    gpus = sum(int(quantity(value)) for name, value in wanted.items() if name.endswith("/gpu"))
    main.env["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in builder.gpus(lease, gpus))
    memory = resources.get("limits", {}).get("memory")
    return PodSpec(
        name=pod_name,
        main=main,
        init=init,
        volumes=builder.volumes,
        outputs=[
            _output(p) for p in template.get("outputs", {}).get("parameters", []) if "path" in p.get("valueFrom", {})
        ],
        hostname=hostname,
        address=address,
        hosts=str(job.path / "hosts"),
        memory=int(quantity(memory)) if memory is not None else None,
        grace=float(patch.get("terminationGracePeriodSeconds", 30)),
        hidden=[str(home.path / name) for name in ("jobs", "claims", "secrets")],  # other jobs', and this one's Secrets
    )


def _output(parameter: Mapping[str, Any]) -> Output:
    source = parameter["valueFrom"]
    return Output(name=parameter["name"], path=source["path"], default=source.get("default"))


def expand(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes' own rewriting of `$(NAME)` and `$$` in env values, commands and arguments."""
    return _REFERENCE.sub(lambda m: "$" if m.group(0) == "$$" else env.get(m.group(1), m.group(0)), text)


class _Builder:
    def __init__(
        self,
        home: Home,
        job: Job,
        template: Mapping[str, Any],
        pod_name: str,
        address: str,
        environment: Mapping[str, Any],
    ) -> None:
        self._home, self._job, self._template = home, job, template
        self._environment = environment
        self._labels = template.get("metadata", {}).get("labels", {})
        self._fields = {
            "metadata.name": pod_name,
            "metadata.namespace": NAMESPACE,
            "status.podIP": address,
            "spec.nodeName": os.uname().nodename,
        }
        self._declared = {volume["name"]: volume for volume in template.get("volumes", [])}
        self.volumes: dict[str, Volume] = {}

    def container(self, name: str, container: Mapping[str, Any]) -> Container:
        ours = container.get("image", "").split("/")[-1].split(":")[0] in OUR_IMAGES
        env = self._base_environment(ours)
        env["ARGO_PROGRESS_FILE"] = contract.path(f"{contract.RUN_DIR}/progress")
        for source in container.get("envFrom", []):
            env.update(self._secret_values(source["secretRef"]))
        for variable in container.get("env", []):
            env[variable["name"]] = self._value(variable, env)
        argv = [expand(part, env) for part in [*container.get("command", []), *container.get("args", [])]]
        if ours and argv[0] == "python3":
            argv[0] = sys.executable
        mounts = [m for m in (self._mount(mount) for mount in container.get("volumeMounts", [])) if m is not None]
        if self._template.get("automountServiceAccountToken"):
            self.volumes["control"] = Volume("folder", str(self._job.control))
            mounts.append(Mount("control", contract.CONTROL_DIR))
        return Container(name=name, argv=argv, env=env, cwd=container.get("workingDir", "/"), mounts=mounts)

    def _base_environment(self, ours: bool) -> dict[str, str]:
        if not ours:
            return dict(self._environment["env"])
        # the submitter's, whoever started the runner
        env = {name: value for name, value in self._environment["env"].items() if PASSED_ON.fullmatch(name)}
        if self._labels.get(contract.LABEL_ROLE) != "learner":
            env.update(self._environment.get("store", {}))
        return {**env, "PATH": f"{os.path.dirname(sys.executable)}:{SYSTEM_PATH}", "PYTHONUNBUFFERED": "1"}

    def _value(self, variable: Mapping[str, Any], env: Mapping[str, str]) -> str:
        source = variable.get("valueFrom")
        if not source:
            return expand(str(variable.get("value", "")), env)
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
            return str(self._labels.get(label.group(1), "") if label else self._fields.get(path, ""))
        reference = source["secretKeyRef"]
        return self._secret_values(reference).get(reference["key"], "")

    def _secret_values(self, reference: Mapping[str, Any]) -> dict[str, str]:
        folder = self._secret(reference["name"], bool(reference.get("optional")))
        if folder is None:
            return {}
        return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}

    def _secret(self, name: str, optional: bool) -> Path | None:
        """The folder of the job's own Secret, or of one that the user put into the home; None only if `optional`."""
        candidates = (self._job.objects / "secrets" / name, self._home.path / "secrets" / name)
        found = next((folder for folder in candidates if folder.is_dir()), None)
        if found is None and not optional:
            raise CannotStartError(f'secret "{name}" not found; put its keys as files into {candidates[1]}')
        return found

    def _mount(self, mount: Mapping[str, Any]) -> Mount | None:
        name, read_only = mount["name"], bool(mount.get("readOnly"))
        volume = self._volume(name, read_only)
        if volume is None:
            return None
        key = f"{name}-overlay" if volume.kind == "overlay" else name
        self.volumes[key] = volume
        if sub_path := mount.get("subPath", ""):
            os.makedirs(os.path.join(volume.path, sub_path), mode=0o777, exist_ok=True)
        return Mount(key, mount["mountPath"], sub_path, read_only and volume.kind != "overlay")

    def _volume(self, name: str, read_only: bool) -> Volume | None:
        volume = self._declared.get(name)
        if volume is None:
            raise CannotStartError(f'volume "{name}" is not declared')
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            own = claim.removeprefix(f"{self._job.id}-")  # one of the Workflow's volumeClaimTemplates
            return self._folder((self._home if own == claim else self._job).path / "claims" / own)
        if "emptyDir" in volume:  # a memory volume is /dev/shm, which is the machine's own
            return None if volume["emptyDir"].get("medium") == "Memory" else Volume("empty")
        if "configMap" in volume:
            folder = self._job.objects / "configmaps" / volume["configMap"]["name"]
            if not folder.is_dir():
                raise CannotStartError(f'configmap "{volume["configMap"]["name"]}" not found')
            return Volume("folder", str(folder))
        if "secret" in volume:
            secret = self._secret(volume["secret"]["secretName"], bool(volume["secret"].get("optional")))
            return Volume("empty") if secret is None else Volume("folder", str(secret))
        return self._host_path(volume["hostPath"], read_only)

    def _host_path(self, source: Mapping[str, Any], read_only: bool) -> Volume:
        path = Path(source["path"])
        if source.get("type") == "DirectoryOrCreate":
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CannotStartError(f"host path {path} can't be made: {error.strerror}") from None
        if not path.is_dir():
            raise CannotStartError(f"host path {path} is not a folder on this machine")
        return Volume("overlay" if read_only else "folder", str(path))

    @staticmethod
    def _folder(path: Path) -> Volume:
        path.mkdir(parents=True, exist_ok=True, mode=0o777)
        return Volume("folder", str(path))

    def gpus(self, lease: Lease, count: int) -> list[int]:
        """The same share of the lease at every attempt: by the pod's index among its like."""
        parameters = self._template.get("inputs", {}).get("parameters", [])
        index = next((int(p["value"]) for p in parameters if p["name"] == "index" and str(p["value"]).isdigit()), 0)
        return lease.gpus[index * count : (index + 1) * count]
