"""A job's record, the ConfigMap `<id>-record`: what is known of a job when its Workflow is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...learner import contract
from ..base import EngineError
from ..nodes import unix_time
from ..status import FAILED, JobStatus
from . import objects
from .access import CONFIG_MAPS, Api, Object

SELECTOR = f"{contract.LABEL_RECORD}=true"
MOST_NODES = 100  # nodes of a status that are kept
UNKNOWN_END = "its Workflow is gone, and how it ended was not noted; `ffdl download` fetches what it stored"


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
    return JobStatus(job_id, FAILED, name, reason=UNKNOWN_END, submitted=submitted, **known)


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
