"""With what a job begins that runs another one again."""

from __future__ import annotations

import json
from typing import Any

from ..learner import contract
from .base import Refused


def summarized(workflow: dict[str, Any], job_id: str, from_checkpoint: bool) -> dict[str, Any]:
    """`workflow`, that of `job_id`, with what `ffdl show` says of a job that runs it again."""
    metadata = workflow["metadata"]
    annotations = metadata.get("annotations") or {}
    if contract.ANNOTATION_SUMMARY not in annotations:
        return workflow
    summary = _continuing(json.loads(annotations[contract.ANNOTATION_SUMMARY]), job_id, from_checkpoint)
    annotations = {**annotations, contract.ANNOTATION_SUMMARY: json.dumps(summary, ensure_ascii=False)}
    return {**workflow, "metadata": {**metadata, "annotations": annotations}}


def job_file(old: bytes, job_id: str, from_checkpoint: bool) -> bytes:
    """JOB_FILE of a job that runs `job_id` again, of `old`, that one's: from its beginning, or its last checkpoint.

    Raises Refused where there can be none.
    """
    values = _continuing(json.loads(old), job_id, from_checkpoint)
    if from_checkpoint and values.get("results") is None:
        again = f"`ffdl resubmit {job_id}` begins anew"
        raise Refused(f"{job_id} keeps no results, and so no checkpoint to go on from: {again}")
    return (json.dumps(values, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def _continuing(values: dict[str, Any], job_id: str, from_checkpoint: bool) -> dict[str, Any]:
    others = {name: value for name, value in values.items() if name != "continues"}
    return {**others, "continues": job_id} if from_checkpoint else others
