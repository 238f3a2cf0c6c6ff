"""A training job with everything decided: what a manifest says, and the defaults, the image and the stores."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from ..learner import contract
from . import frameworks
from .catalogue import Catalogue, shipped
from .errors import ManifestError, Problem
from .manifest import DataStore, Manifest, load
from .references import REFERENCE

DEFAULT_CPUS = 5.0  # FfDL's, per learner
DEFAULT_SERVER_CPUS = 1.0
DEFAULT_MEMORY = 512 * 10**6
DEFAULT_STORAGE = 10 * 2**30
BY_MPIRUN = ("horovod", "pytorchmpi")  # frameworks whose command FfDL had started in all learners by mpirun
OWN_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True)
class Machine:
    """What one machine has to give: CPUs and bytes of memory. Defaults, never written values, are clamped to it."""

    cpus: float
    memory: int


@dataclass(frozen=True)
class TrainingJob:
    """A job as the compiler wants it. `spec` is what its steps read; sizes in bytes, times in seconds.

    `credentials` and `secret_env` travel in Secrets only. `notes` are words for the user about values chosen for them,
    `warning` is one about the image, which the job's status shows for good. `needs` are the `module` of a framework of
    the site's own, and how to `install` it.
    """

    spec: contract.JobSpec
    image: str
    storage: int = DEFAULT_STORAGE
    shm: int = DEFAULT_MEMORY // 2
    description: str = ""
    gpu_type: str = ""
    server_cpus: float = DEFAULT_SERVER_CPUS
    server_memory: int = DEFAULT_MEMORY
    host_data: str = ""
    host_results: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    store_secret: str = ""
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)  # of a private image: server, password, email
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    env_from_secret: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class: str | None = None
    notes: tuple[str, ...] = ()
    warning: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_manifest(
        cls,
        manifest: Manifest | str | bytes,
        *,
        environ: Mapping[str, str] | None = None,
        machine: Machine | None = None,
        file: str = "manifest.yml",
        folder: str = "",
        catalogue: Catalogue | None = None,
    ) -> TrainingJob:
        """Decides everything that `manifest` (read already, or its text) leaves open.

        `environ` gives the values of `${NAME}`; `machine` bounds the defaults of a job that will run on it alone; a
        host path that is not absolute is one in `folder`. Frameworks of a text are those of `catalogue`, by default
        ffdl's own. Raises ManifestError.
        """
        if not isinstance(manifest, Manifest):
            manifest = load(manifest.encode() if isinstance(manifest, str) else manifest, file, catalogue=catalogue)
        resolve = _Resolver(environ or {}, file)
        notes: list[str] = []
        cpus, memory, server_cpus, server_memory = _resources(manifest, machine, notes)
        if manifest.evaluation_metrics is not None and manifest.evaluation_metrics.type.startswith("tensorboard"):
            notes.append("metrics are not read from TensorBoard files in this version; what is in $LOG_DIR is stored")
        if note := frameworks.note(manifest.framework):
            notes.append(note)
        store = manifest.data_stores[0] if manifest.data_stores else None
        data, results = _stores(store)
        plain_env, secret_env = resolve.split(manifest.env)
        credentials, store_secret = resolve.credentials(store, notes)
        registry = resolve.registry(manifest)
        resolve.finish()
        host = _host_folder(store, folder)
        checkpoint, retry, distribution = manifest.checkpoint, manifest.retry, manifest.distribution
        servers = _servers(manifest)
        kind, processes = distribution.kind, distribution.processes or ""
        if _by_mpirun(manifest):
            kind, processes = contract.MPI, contract.PER_GPU
        spec = contract.JobSpec(
            name=manifest.name,
            command=manifest.framework.command,
            framework=manifest.framework.name,
            framework_version=manifest.framework.version,
            learners=manifest.learners,
            cpus=cpus,
            gpus=float(manifest.gpus),
            memory=memory,
            data=data,
            results=results,
            distribution=kind,
            processes=processes,
            servers=servers,
            server_cpus=server_cpus,
            mode=(distribution.mode or "sync") if servers else "",
            completion="master" if kind == contract.MPI else manifest.completion or _completion(manifest),
            retry_attempts=retry.attempts,
            retry_on=list(retry.on),
            checkpoint_interval=checkpoint.interval,
            checkpoint_steps=checkpoint.steps,
            checkpoint_keep=checkpoint.keep,
            halt_grace=manifest.halt_grace,
            start_timeout=manifest.start_timeout,
            max_runtime=manifest.max_runtime,
            env=plain_env,
            metrics=manifest.metrics_json(),
        )
        placement = manifest.placement
        return cls(
            spec=spec,
            image=frameworks.image(manifest.framework),
            storage=manifest.storage or DEFAULT_STORAGE,
            shm=placement.shm or memory // 2,
            description=manifest.description,
            gpu_type=manifest.gpu_type,
            server_cpus=server_cpus,
            server_memory=server_memory,
            host_data=posixpath.join(host, data.bucket) if host and data else "",
            host_results=posixpath.join(host, results.bucket) if host and results and results.kind == "host" else "",
            credentials=credentials,
            store_secret=store_secret,
            registry=registry,
            secret_env=secret_env,
            env_from_secret=tuple(manifest.env_from_secret),
            node_selector=placement.node_selector,
            tolerations=tuple(placement.tolerations),
            priority_class=placement.priority_class,
            notes=tuple(notes),
            warning=frameworks.warning(manifest.framework, here=machine is not None),
            needs=_needs(manifest),
        )

    @classmethod
    def from_arguments(
        cls,
        *,
        environ: Mapping[str, str] | None = None,
        machine: Machine | None = None,
        catalogue: Catalogue | None = None,
        **keys: Any,
    ) -> TrainingJob:
        """A job from the manifest's keys as arguments: `from_arguments(name=…, framework={…}, cpus=2)`. Same checks."""
        text = yaml.dump(keys, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
        return cls.from_manifest(text, environ=environ, machine=machine, file="arguments", catalogue=catalogue)

    def task(self, code: bytes | None = None, name: str = "train", image: str = "", **arguments: Any) -> Any:
        """This job as a node of the Hera DAG or Steps that is being built; its output parameter `id` is the job's id.

        `code` is a zip (`ffdl.pack("folder")`); `arguments` are those of Hera's Task or Step, `depends` for one. The
        node succeeds or fails as the job does, and stopping it stops the job. `image` is that of the steps where the
        cluster has it, such as `registry.example/ffdl-steps:0.1.0`; what the job's own pods run, the namespace decides.
        Raises task.TaskError.
        """
        from .task import template

        return template(self, code, name, image)(name=name, **arguments)

    def summary(self) -> dict[str, Any]:
        """What a list of jobs shows of this one."""
        spec = self.spec
        return {
            "framework": spec.framework,
            "version": spec.framework_version,
            "learners": spec.learners,
            "gpus": int(spec.gpus),
            "cpus": spec.cpus,
            "memory": spec.memory,
            "description": self.description,
            "gpu_type": self.gpu_type,
            **({"warning": self.warning} if self.warning else {}),
            **self.needs,
        }


def _needs(manifest: Manifest) -> dict[str, str]:
    """What ffdl's own catalogue does not say of the framework: `module`, `install`."""
    name, entry = manifest.framework.name, manifest.framework.entry
    own = shipped().entries.get(name)
    if entry is None or entry.module is None or (own and (own.module, own.install) == (entry.module, entry.install)):
        return {}
    return {"module": entry.module, "install": entry.install}


def _fixed_by_ffdl(manifest: Manifest) -> bool:
    """A manifest that names a distribution is not FfDL's."""
    return "distribution" not in manifest.model_fields_set


def _completion(manifest: Manifest) -> str:
    """FfDL ended a job with its first learner."""
    return "first" if manifest.learners > 1 and _fixed_by_ffdl(manifest) else "all"


def _by_mpirun(manifest: Manifest) -> bool:
    several = manifest.learners * max(1, int(manifest.gpus)) > 1
    return several and _fixed_by_ffdl(manifest) and manifest.framework.name in BY_MPIRUN


def _resources(manifest: Manifest, machine: Machine | None, notes: list[str]) -> tuple[float, int, float, int]:
    """CPUs and memory of a learner, then of a parameter server. Defaults are clamped to what the machine has."""
    learners, servers = manifest.learners, _servers(manifest)
    cpus, memory = manifest.cpus, manifest.memory
    server_cpus, server_memory = manifest.distribution.cpus, manifest.distribution.memory
    whole = machine or Machine(float("inf"), 1 << 62)
    if server_cpus is None:
        share = (whole.cpus - (cpus or 0.0) * learners) / (servers + (learners if cpus is None else 0) or 1)
        server_cpus = DEFAULT_SERVER_CPUS if share >= DEFAULT_SERVER_CPUS else max(0.1, int(share * 10) / 10)
    if cpus is None:
        cpus, room = DEFAULT_CPUS, whole.cpus - server_cpus * servers
        if cpus * learners > room:
            cpus = max(0.1, int(room / learners * 10) / 10)
            notes.append(
                f"cpus is not set: {cpus:g} a learner, FfDL's default of {DEFAULT_CPUS:g} does not fit this machine"
            )
    if memory is None:
        memory, room = DEFAULT_MEMORY, whole.memory - (server_memory or 0) * servers
        count = learners + (servers if server_memory is None else 0)
        if memory * count > room:
            memory = int(max(0, room) // count)
            notes.append(
                f"memory is not set: {memory // 10**6} MB a learner, FfDL's default of 512 MB does not fit this machine"
            )
    return cpus, memory, server_cpus, server_memory or memory


def _servers(manifest: Manifest) -> int:
    return (manifest.distribution.servers or 1) if manifest.distribution.kind == contract.PARAMETER_SERVER else 0


def _stores(store: DataStore | None) -> tuple[contract.Store | None, contract.Store | None]:
    own = contract.Store(kind="claim", bucket=contract.DEFAULT_RESULTS_BUCKET)
    if store is None:
        return None, own
    kind = "host" if store.type == "mount_volume" else "s3"
    shared = {
        "id": store.id,
        "kind": kind,
        "layout": "copy" if store.type == "s3_datastore" else "mount",
        "endpoint": store.connection.get("auth_url", "") if kind == "s3" else "",
        "region": store.connection.get("region", "") if kind == "s3" else "",
    }
    data = contract.Store(bucket=store.training_data.container, **shared)
    if store.training_results is None:
        return data, own
    if store.training_results.container == contract.NO_RESULTS:
        return data, None
    return data, contract.Store(bucket=store.training_results.container, **shared)


def _host_folder(store: DataStore | None, folder: str) -> str:
    if store is None or store.type != "mount_volume":
        return ""
    return posixpath.normpath(posixpath.join(folder, store.connection["path"]))


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block: a command of several lines is a script."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


class _Resolver:
    """Fills in `${NAME}` from the submitter's environment and remembers which names it lacked."""

    def __init__(self, environ: Mapping[str, str], file: str) -> None:
        self._environ, self._file = environ, file
        self._missing: dict[str, str] = {}

    def text(self, text: str, where: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in self._environ:
                self._missing.setdefault(name, where)
            return self._environ.get(name, "")

        return REFERENCE.sub(value, text)

    def split(self, env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Values that come from the submitter's environment are secret; the others are not."""
        plain = {name: value for name, value in env.items() if not REFERENCE.search(value)}
        secret = {name: self.text(value, f"env.{name}") for name, value in env.items() if name not in plain}
        return plain, secret

    def credentials(self, store: DataStore | None, notes: list[str]) -> tuple[dict[str, str], str]:
        """As written; where nothing is, the keys of the submitter's environment, which pods elsewhere do not have."""
        if store is None or store.type == "mount_volume":
            return {}, ""
        if "secret" in store.connection:
            return {}, store.connection["secret"]
        names = [name for name in ("user_name", "password") if store.connection.get(name)]
        if not names and all(self._environ.get(variable) for variable in OWN_CREDENTIALS[:2]):
            notes.append(f"data store {store.id}: the job gets {OWN_CREDENTIALS[0]} of your environment, as a Secret")
            values = (self._environ.get(variable, "") for variable in OWN_CREDENTIALS)
            return {name: value for name, value in zip(contract.STORE_CREDENTIALS, values, strict=True) if value}, ""
        return {name: self.text(store.connection[name], f"data_stores.0.connection.{name}") for name in names}, ""

    def registry(self, manifest: Manifest) -> dict[str, str]:
        location = manifest.framework.image_location
        if location is None or not location.access_token:
            return {}
        token = self.text(location.access_token, "framework.image_location.access_token")
        return {"server": location.registry, "password": token, "email": location.email or ""}

    def finish(self) -> None:
        if self._missing:
            raise ManifestError(
                [
                    Problem(
                        self._file,
                        0,
                        f"{where} says ${{{name}}}, which is not set in your environment; export {name} first",
                    )
                    for name, where in self._missing.items()
                ]
            )
