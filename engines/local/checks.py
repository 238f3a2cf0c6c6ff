"""What a Workflow needs of this machine, looked at before it is submitted: what could never run is refused at once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ...learner import contract
from ..base import EngineError, Refused
from ..nodes import is_training_job
from . import operator, sandbox
from .leases import Capacity, demand


def check(workflow: Mapping[str, Any], machine: Capacity, python: str) -> None:
    """Raises Refused for a Workflow that can't run on `machine`, whose learners or steps run in `python`.

    Raises EngineError where that can't be found out now.
    """
    try:
        isolation = sandbox.available()
    except ValueError as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise EngineError(str(error)) from error
    if problems := operator.unsupported(workflow) or operator.invalid(workflow):
        raise Refused("; ".join(problems))
    training = is_training_job(workflow)
    lacks = _of_training_job(workflow, machine, python) if training else _of_others(workflow, python, isolation)
    for lack in lacks:
        raise Refused(lack)
    for volume in workflow["spec"].get("volumes", []):
        source = volume.get("hostPath") or {}
        if source and "OrCreate" not in source.get("type", "") and not os.path.exists(source["path"]):
            raise Refused(f"host path {source['path']} is not on this machine; make it or correct the manifest")


def _of_training_job(workflow: Mapping[str, Any], machine: Capacity, python: str) -> Iterator[str]:
    yield from _framework(workflow, python)
    if lack := machine.lacks(demand(workflow)):
        yield f"this job can never start here: it {lack}; ask for less in the manifest"


def _framework(workflow: Mapping[str, Any], python: str) -> Iterator[str]:
    """There are no images here: what a learner's image would bring, its Python must have."""
    import subprocess

    summary = json.loads(workflow["metadata"]["annotations"][contract.ANNOTATION_SUMMARY])
    module, install = _needs(summary)
    if not module and python == sys.executable:
        return

    look = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]) is not None)"
    try:
        found = subprocess.run([python, "-c", look, module or "sys"], capture_output=True).stdout.split()
    except OSError as error:
        yield f"{python} can't be run: {error.strerror}; name a Python with --python"
        return
    if found not in ([b"True"], [b"False"]):
        yield f"{python} is no Python; name one with --python"
    elif found == [b"False"]:
        get = f"get it there with `{install}`, or " if install else ""
        lack = f"{python} has no {module}, which {summary['framework']} jobs import"
        yield f"{lack}; {get}name a Python that has it with --python"


def _needs(summary: Mapping[str, Any]) -> tuple[str, str]:
    """The module that the job's framework is, '' for none, and how to get it. A site's own travel with the job."""
    from ...workflows.catalogue import shipped

    if "module" in summary:
        return summary["module"], summary.get("install", "")
    known = shipped().entries.get(summary.get("framework", ""))
    return (known.module or "", known.install) if known is not None else ("", "")


def _of_others(workflow: Mapping[str, Any], python: str, isolation: str) -> Iterator[str]:
    """Of a Workflow that is no training job: programs, and places to mount at. A pod too large only waits: it may be
    on a way that is never taken."""
    from . import environment, programs

    if missing := programs.missing(workflow, environment.user_environment(python, os.environ)["PATH"]):
        yield "; ".join(missing)
    chosen = os.environ.get(sandbox.SWITCH_ENV) == sandbox.NONE  # by who knows where mounts are then
    if not chosen and isolation == sandbox.NONE and (paths := programs.unplaceable(workflow)):
        yield f"{'; '.join(paths)}: this kernel gives pods no namespaces; `ffdl doctor` says how to get them"
