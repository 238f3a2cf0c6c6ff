"""Putting a job on the cluster, whole or not at all.

The Workflow comes first and suspended; what belongs to it follows; one change releases it. What a crash leaves half-way
is a job that never starts, which the sweep removes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...learner import contract
from ..base import EngineError, Refused
from . import objects
from .access import CONFIG_MAPS, SECRETS, WORKFLOWS, Api, Object
from .errors import ApiError

if TYPE_CHECKING:
    from ...workflows.site import Site

MOST_CODE = 700 * 1024  # bytes of zip that travel in the ConfigMap, which may have 1 MiB in all
_ARGOS = "workflows.argoproj.io/"
_NOT_COPIED = (contract.ANNOTATION_REASON, contract.ANNOTATION_STOP, contract.ANNOTATION_RELEASED)


def submit(
    api: Api, site: Site, job_id: str, workflow: Object, config: Mapping[str, bytes], secrets: Mapping[str, Any]
) -> None:
    """Raises Refused, EngineError; then nothing of the job is left, unless the error says so."""
    spec = contract.JobSpec.from_json(config[contract.JOB_FILE].decode())
    check(site, workflow)
    files = dict(config)
    large = files.pop(contract.CODE_FILE) if len(files.get(contract.CODE_FILE, b"")) > MOST_CODE else None
    if large is not None and spec.results is None:
        raise Refused(
            f"the code is {len(large) / 1e6:.1f} MB packed; more than {MOST_CODE >> 10} KiB goes by way of the results "
            "store, and this manifest keeps no results: name training_results, or leave files out with .ffdlignore"
        )
    created = _create_workflow(api, job_id, workflow)
    try:
        owner = objects.owned_by(WORKFLOWS, created)
        record = api.create(CONFIG_MAPS, objects.record(job_id, created, spec))
        api.create(CONFIG_MAPS, objects.config_map(job_id, files, owner))
        api.create(CONFIG_MAPS, objects.status_map(job_id, owner))
        for suffix, data in secrets.items():
            token = {} if suffix else {contract.TOKEN_FILE: os.urandom(24).hex().encode()}
            owners = objects.owner_of(suffix, owner, objects.owned_by(CONFIG_MAPS, record))
            api.create(SECRETS, objects.secret(job_id, suffix, {**data, **token}, owners))
        if large is not None:
            from .carrier import send_code

            send_code(api, site, job_id, large)
        released = {contract.ANNOTATION_RELEASED: "true"}
        api.patch(WORKFLOWS, job_id, {"spec": {"suspend": None}, "metadata": {"annotations": released}})
    except BaseException as error:
        from . import deletion

        try:
            deletion.remove(api, job_id)
        except EngineError:
            if isinstance(error, EngineError):
                raise EngineError(f"{error}; {job_id} may be there all the same: `ffdl delete {job_id}`") from error
        raise


def check(site: Site, workflow: Object) -> None:
    """Raises Refused for what can never run in this namespace."""
    for volume in workflow["spec"].get("volumes") or ():
        path = volume.get("hostPath", {}).get("path")
        if path is not None and not site.allows(path):
            raise Refused(
                f"host path {path} is not among those that this namespace allows (host-paths of the ConfigMap "
                "ffdl-tenant); put the data into a bucket, or have the path allowed"
            )


def _create_workflow(api: Api, job_id: str, workflow: Object) -> Object:
    annotations, labels = (_users(workflow["metadata"].get(part)) for part in ("annotations", "labels"))
    metadata = {"name": job_id, "annotations": annotations, "labels": {**labels, contract.LABEL_JOB: job_id}}
    spec = {key: value for key, value in workflow["spec"].items() if key != "shutdown"}
    try:
        return api.create(WORKFLOWS, {"metadata": metadata, "spec": {**spec, "suspend": True}})
    except ApiError as error:
        if error.reason == "AlreadyExists":
            raise Refused(f"there is a job {job_id} already") from None
        raise


def _users(values: Mapping[str, str] | None) -> dict[str, str]:
    """Of a Workflow's labels or annotations what tells nothing of how it has run: that is another job's."""
    return {k: v for k, v in (values or {}).items() if k not in _NOT_COPIED and not k.startswith(_ARGOS)}
