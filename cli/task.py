"""`ffdl task`: what a node of a pipeline runs (`TrainingJob.task`). Submits its job, or finds it again, and waits."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import click

from ..learner import contract
from .settings import FINE, JOB_FAILED, Settings, Verb, tell

if TYPE_CHECKING:
    from ..engines.base import Engine


@click.command("task", cls=Verb, hidden=True)
@click.pass_obj
def command(settings: Settings) -> int:
    """Run the training job that this pod holds, as a node of a pipeline."""
    from ..engines.argo.patience import passing
    from ..engines.base import EngineError

    node = os.environ.get(contract.TASK_NODE_ENV)
    if not node:
        raise click.ClickException("this is what a node of a pipeline runs; `ffdl train` submits a job")
    engine, job_id = settings.engine(), job_id_of(node)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        _submit_once(engine, job_id)
        with open(contract.path(contract.TASK_ID_FILE), "w", encoding="ascii") as stream:
            stream.write(job_id)
        return _stay(engine, job_id)
    except _Terminated:
        if _goes_on(engine, node):
            tell(f"leaves {job_id} to the next pod of this node")
            return contract.EXIT_AGAIN
        tell(f"stops {job_id}, because its node is stopped")
        engine.stop(job_id)
        return JOB_FAILED
    except EngineError as error:
        if not passing(error):
            raise
        tell(f"{error}; leaves {job_id} to the next pod of this node")
        return contract.EXIT_AGAIN


def _goes_on(engine: Engine, node: str) -> bool:
    """A pod is told to end in the same way when its pipeline is stopped and when its machine is drained."""
    from ..engines.argo.engine import ArgoEngine

    pipeline = os.environ.get(contract.TASK_WORKFLOW_ENV, "")
    return isinstance(engine, ArgoEngine) and engine.wants(pipeline, *node.split("/", 1))


class _Terminated(BaseException):
    pass


def _terminated(*_: Any) -> None:
    raise _Terminated


def job_id_of(node: str) -> str:
    """The id of the job of `UID/NAME`: the same for each attempt of a node, whose names end in `(N)`."""
    digest = hashlib.sha256(re.sub(r"\(\d+\)$", "", node).encode()).digest()
    return "training-" + base64.b32encode(digest[:7]).decode().lower()[:10]


def _submit_once(engine: Engine, job_id: str) -> None:
    from ..engines.base import NoSuchJob
    from ..engines.status import NOT_STARTED
    from ..workflows.compile import compile_job
    from ..workflows.task import load

    try:
        if engine.status(job_id).state != NOT_STARTED:
            tell(f"found {job_id} again")
            return
        engine.delete(job_id)  # an earlier attempt was lost while it submitted
    except NoSuchJob:
        pass
    job = load(_decoded(contract.TASK_JOB_FILE).decode())
    code = _decoded(contract.TASK_CODE_FILE) if os.path.exists(contract.path(contract.TASK_CODE_FILE)) else None
    if code is None:
        from ..engines.archive import no_code

        code = no_code()
    engine.submit(compile_job(job, code=code, job_id=job_id, site=getattr(engine, "site", None)), job_id)
    tell(f"submitted {job_id}")


def _decoded(path: str) -> bytes:
    with open(contract.path(path), "rb") as stream:
        return base64.b64decode(stream.read())


def _stay(engine: Engine, job_id: str) -> int:
    """Until the job has ended; a halted one is waited for: its GPUs are free, and this node costs next to nothing."""
    from .following import wait_and_tell
    from .settings import HALTED_CODE

    while True:
        code = wait_and_tell(engine, job_id)
        if code != HALTED_CODE:
            return FINE if code == FINE else JOB_FAILED
        tell(f"waits until {job_id} is resumed")
        for status in engine.watch(job_id):
            if status.state != "HALTED":
                break
