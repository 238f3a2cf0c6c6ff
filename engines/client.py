"""The Python API: `Client` submits jobs to an engine and hands out a `Job` for each. Imports engines on first use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .base import RESULTS, EngineError, Refused

if TYPE_CHECKING:
    from ..workflows.job import TrainingJob
    from ..workflows.manifest import Manifest
    from .base import Engine, Event, LogLine
    from .status import JobStatus

ENGINES = ("local", "argo")


def new_job_id() -> str:
    """`training-` and 10 characters of lower-case base32 (50 random bits)."""
    import base64

    return "training-" + base64.b32encode(os.urandom(7)).decode().lower()[:10]


def new_id_like(status: JobStatus) -> str:
    """An id for a job that runs again; of a Workflow that is no training job, its name with another end."""
    from .status import TRAINING_JOB

    if status.kind == TRAINING_JOB:
        return new_job_id()
    from .local.plain import renamed

    return renamed(status.id)


def open_engine(
    name: str,
    home: Path | None = None,
    python: str | None = None,
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> Engine:
    """The engine called `name`. Raises EngineError.

    The local engine keeps its state in `home` (default $FFDL_HOME) and runs learners with `python`. A cluster is found
    as kubectl finds it: by a `kubeconfig` file, a `context` in it, and a `namespace`.
    """
    if name == "local":
        from .local.engine import LocalEngine

        return LocalEngine(home, python or active_python())
    if name == "argo":
        from .argo.engine import ArgoEngine

        return ArgoEngine(namespace, context, kubeconfig)
    raise EngineError(f"no engine is called {name!r}; there are {' and '.join(ENGINES)}")


def active_python() -> str:
    """The Python of the environment that is active in the user's shell, else the one that runs this."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = os.path.join(os.environ.get(name, ""), "bin", "python")
        if os.environ.get(name) and os.access(python, os.X_OK):
            return python
    return sys.executable


def decide(engine: Engine, manifest: Manifest, file: Path) -> TrainingJob:
    """The job that `manifest`, read from `file`, is on `engine`: defaults that fit its machine, `${NAME}` from the
    environment, paths relative to the file. Raises ManifestError.
    """
    from ..workflows.job import Machine, TrainingJob

    machine = getattr(engine, "machine", None)
    return TrainingJob.from_manifest(
        manifest,
        environ=os.environ,
        machine=None if machine is None else Machine(machine.cpus, machine.memory),
        file=str(file),
        folder=str(file.parent.absolute()),
    )


class ToDict(Protocol):
    """Hera's Workflows, among others."""

    def to_dict(self) -> Any: ...


class Client:
    """Submits and finds jobs. All methods raise EngineError (or NoSuchJob, Refused) with one line that says what to do.

    >>> job = Client().submit(TrainingJob.from_manifest(text), code="my-job/")
    >>> job.wait().state
    'COMPLETED'
    """

    def __init__(
        self,
        engine: str | Engine = "local",
        *,
        home: str | os.PathLike[str] | None = None,
        python: str | None = None,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        catalogue: str | os.PathLike[str] | None = None,
    ) -> None:
        """`engine` is a name (`local`, `argo`) or an engine; `catalogue` is the site's file of frameworks, by default
        $FFDL_CATALOGUE; the rest is as in `open_engine`.
        """
        if isinstance(engine, str):
            engine = open_engine(
                engine,
                Path(home) if home is not None else None,
                python,
                namespace=namespace,
                context=context,
                kubeconfig=None if kubeconfig is None else os.fspath(kubeconfig),
            )
        self.engine, self._catalogue = engine, catalogue

    def train(
        self,
        manifest: str | os.PathLike[str],
        code: str | os.PathLike[str] | None = None,
        overrides: Sequence[str] = (),
    ) -> Job:
        """As `ffdl train MANIFEST [CODE] --set …`: `code` defaults to the manifest's folder. Raises ManifestError."""
        from ..workflows.manifest import load
        from .catalogue import read_catalogue

        file = Path(manifest)
        text = file.read_bytes()
        job = decide(self.engine, load(text, str(file), overrides, read_catalogue(self._catalogue)), file)
        return self.submit(job, file.parent if code is None else code, manifest_text=text)

    def submit(
        self,
        job: TrainingJob,
        code: str | os.PathLike[str] | bytes | None = None,
        manifest_text: bytes | None = None,
    ) -> Job:
        """Starts `job` with `code`: a folder, a zip file or a zip's bytes (default: no code, an empty folder).

        `manifest_text`, if there is one, is kept with the results.
        """
        from ..workflows.compile import compile_job
        from .archive import no_code, pack_code

        if not isinstance(code, bytes):
            code = no_code() if code is None else pack_code(Path(code), manifest_text)
        job_id = new_job_id()
        site = getattr(self.engine, "site", None)
        compiled = compile_job(job, code=code, job_id=job_id, manifest_text=manifest_text, site=site)
        self.engine.submit(compiled, job_id)
        return Job(self.engine, job_id)

    def run(
        self,
        workflow: Mapping[str, Any] | str | os.PathLike[str] | ToDict,
        parameters: Mapping[str, str] | None = None,
        *,
        templates: Sequence[Mapping[str, Any]] = (),
        config_maps: Mapping[str, Mapping[str, bytes]] | None = None,
        secrets: Mapping[str, Mapping[str, bytes]] | None = None,
        replace: bool = False,
    ) -> Job:
        """Executes any Argo Workflow on this machine: a file as `ffdl run` takes it, a mapping, or what has a
        `to_dict()`, like Hera's.

        `templates`, `config_maps` and `secrets` are what it may use besides what is in the file; `replace` is for names
        that are taken by one that has ended. Raises ManifestError for a file, Refused for anything that can't run here.
        """
        from ..workflows.objects import read
        from ..workflows.submission import submission, with_parameters
        from .lint import notes

        submit = getattr(self.engine, "submit_workflow", None)
        if submit is None:
            raise EngineError("Workflows are executed by this machine's engine; a cluster takes them by itself")
        made = None
        if isinstance(workflow, str | os.PathLike):
            file = Path(workflow)
            made = submission(read(file.read_bytes(), str(file)), place=str(file))
            workflow, templates = made.workflow, [*made.library, *templates]
            config_maps, secrets = {**made.config_maps, **(config_maps or {})}, {**made.secrets, **(secrets or {})}
        whole = workflow if isinstance(workflow, Mapping) else workflow.to_dict()
        try:
            whole = with_parameters(whole, parameters or {}, None)
        except ValueError as error:
            raise Refused(str(error).removeprefix("-p ")) from None
        if made is not None and templates == made.library:
            notes(made, whole)
        job_id = submit(whole, config_maps=config_maps, secrets=secrets, templates=templates, replace=replace)
        return Job(self.engine, job_id)

    def job(self, job_id: str) -> Job:
        """The job of that whole id. Raises NoSuchJob."""
        self.engine.status(job_id)
        return Job(self.engine, job_id)

    def jobs(self) -> list[Job]:
        """All jobs, newest first."""
        return [Job(self.engine, job_id) for job_id in self.engine.ids()]


class Job:
    """A submitted job. It lives in its engine: this object may go, and `Client().job(id)` finds the job again."""

    def __init__(self, engine: Engine, job_id: str) -> None:
        self.engine, self.id = engine, job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def status(self) -> JobStatus:
        return self.engine.status(self.id)

    @property
    def state(self) -> str:
        return self.status().state

    def workflow(self) -> dict[str, Any]:
        """The job's Argo Workflow, status included."""
        return self.engine.workflow(self.id)

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Returns when the job is COMPLETED, FAILED or HALTED. Raises TimeoutError after `timeout` seconds."""
        return wait_for(self.engine, self.id, timeout)

    def logs(self, follow: bool = False, **which: Any) -> Iterator[LogLine]:
        """The learners' lines; `follow`s until the job ends or halts. `which`: learner, step, attempt, tail, since."""
        return self.engine.logs(self.id, follow=follow, **which)

    def metrics(self, follow: bool = False) -> Iterator[dict[str, Any]]:
        """EMetrics records, oldest first."""
        return self.engine.metrics(self.id, follow=follow)

    def events(self) -> list[Event]:
        return list(self.engine.events(self.id))

    def halt(self, wait: bool = True, timeout: float | None = None) -> None:
        """Commits a checkpoint and gives its CPUs and GPUs back; `wait` returns once that is done."""
        self.engine.halt(self.id, wait=wait, timeout=timeout)

    def resume(self) -> None:
        self.engine.resume(self.id)

    def stop(self) -> None:
        """Ends the job for good; results and logs so far are stored."""
        self.engine.stop(self.id)

    def delete(self, results: bool = False) -> None:
        """Removes the job; what it stored stays unless `results`."""
        self.engine.delete(self.id, results=results)

    def download(self, folder: str | os.PathLike[str], what: str = RESULTS) -> Path:
        """Writes `results`, `definition`, `trainedmodel` or `checkpoint` under `folder`; returns what was written."""
        return self.engine.download(self.id, what, Path(folder))


def wait_for(engine: Engine, job_id: str, timeout: float | None = None) -> JobStatus:
    """The job's status once it is COMPLETED, FAILED or HALTED. Raises TimeoutError after `timeout` seconds."""
    from .status import HALTED

    last = None
    for last in engine.watch(job_id, timeout):
        if last.terminal or last.state == HALTED:
            return last
    state = last.state if last is not None else "unknown"
    raise TimeoutError(f"{job_id} is still {state} after {timeout:g} s" if timeout else f"lost sight of {job_id}")
