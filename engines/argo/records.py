"""A job's record, the ConfigMap `<id>-record`: what is known of a job when its Workflow is gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...learner import contract
from ..base import EngineError
from ..nodes import unix_time
from ..status import COMPLETED, FAILED, JobStatus
from . import objects
from .access import CONFIG_MAPS, Api, Object

if TYPE_CHECKING:
    from ...workflows.site import Site

SELECTOR = f"{contract.LABEL_RECORD}=true"
MOST_NODES = 100  # nodes of a status that are kept
UNKNOWN_END = "its Workflow is gone, and how it ended was not noted; `ffdl show {}` looks into what it stored"
CUT_OFF = "its Workflow was deleted before the job had ended"


def records(api: Api) -> Iterator[Object]:
    return api.list(CONFIG_MAPS, SELECTOR)


def find(api: Api, job_id: str) -> Object | None:
    return api.find(CONFIG_MAPS, job_id + objects.RECORD)


def ended_status(record: Object) -> JobStatus | None:
    """How the job ended, if that has been noted."""
    values = objects.json_object((record.get("data") or {}).get(objects.END_KEY))
    with suppress(TypeError, AttributeError, KeyError):
        return JobStatus.from_dict(values) if values else None
    return None


def status(record: Object) -> JobStatus:
    """The status of a job of which only the record is left."""
    if (noted := ended_status(record)) is not None:
        return noted
    return _ended(record, FAILED, UNKNOWN_END.format(objects.job_of(record)))


def stored_end(api: Api, site: Callable[[], Site], record: Object) -> JobStatus:
    """How a job ended of which only the record is left, and that notes no end: as its results tell, in which that is
    written last. Starts a pod. Raises EngineError where they can't be read.
    """
    from . import stored

    names = {contract.RECORD_FILE: contract.RECORD_FILE}
    with stored.stored(api, site(), objects.job_of(record), names) as files:
        text = files[contract.RECORD_FILE].read_text() if files else ""
    values = objects.json_object(text)
    if values.get("outcome") == "Succeeded":
        ended = _ended(record, COMPLETED)
    else:
        ended = _ended(record, FAILED, str(values.get("reason") or "") if values else CUT_OFF)
    return replace(ended, finished=unix_time(values.get("finished")))


def _ended(record: Object, state: str, reason: str = "") -> JobStatus:
    data = record.get("data") or {}
    summary = objects.json_object(data.get(objects.SUMMARY_KEY))
    job_id = objects.job_of(record)
    name = _text(data.get(objects.NAME_KEY)) or job_id
    known: dict[str, Any] = {
        key: summary[key]
        for key in ("framework", "version", "description", "learners", "cpus", "gpus", "memory")
        if key in summary
    }
    submitted = unix_time(data.get(objects.SUBMITTED_KEY) or None)
    return JobStatus(job_id, state, name, reason=reason, submitted=submitted, **known)


def note_end(api: Api, record: Object, ended: JobStatus) -> None:
    """Keeps how the job ended. A record that can't be written is as good as none: it is only a copy."""
    kept = replace(ended, nodes=tuple(ended.nodes)[:MOST_NODES])
    with suppress(EngineError):
        api.patch(CONFIG_MAPS, record["metadata"]["name"], {"data": {objects.END_KEY: json.dumps(kept.to_dict())}})


def _text(quoted: str | None) -> str:
    with suppress(ValueError):
        value = json.loads(quoted or '""')
        return value if isinstance(value, str) else ""
    return ""
