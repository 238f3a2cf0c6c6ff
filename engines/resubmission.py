"""With what a job begins that runs another one again."""

from __future__ import annotations

from dataclasses import replace

from ..learner.contract import JobSpec
from .base import Refused


def job_file(old: bytes, job_id: str, from_checkpoint: bool) -> bytes:
    """JOB_FILE of a job that runs `job_id` again, of `old`, that one's: from its beginning, or its last checkpoint.

    Raises Refused where there can be none.
    """
    spec = JobSpec.from_json(old.decode())
    if from_checkpoint and spec.results is None:
        raise Refused(
            f"{job_id} keeps no results, and so no checkpoint to go on from: `ffdl resubmit {job_id}` begins anew"
        )
    return replace(spec, continues=job_id if from_checkpoint else "").to_json().encode()
