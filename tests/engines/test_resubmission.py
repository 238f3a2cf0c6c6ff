"""With what a job begins that runs another one again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ffdl.engines.base import Refused
from ffdl.engines.resubmission import job_file
from ffdl.learner.contract import JobSpec, Store

SPEC = JobSpec(
    name="job", command="true", framework="custom", framework_version="x", learners=1, cpus=1.0, gpus=0.0,
    memory=1 << 30, results=Store(kind="s3", bucket="results"),
)  # fmt: skip


def test_only_a_job_that_goes_on_from_another_says_so() -> None:
    """Images of before there was this refuse what they do not know: all other jobs run with them."""
    plain = SPEC.to_json().encode()
    assert b"continues" not in plain
    goes_on = job_file(plain, "training-a", from_checkpoint=True)
    assert JobSpec.from_json(goes_on.decode()).continues == "training-a"
    assert JobSpec.from_json(job_file(goes_on, "training-b", from_checkpoint=True).decode()).continues == "training-b"
    assert job_file(goes_on, "training-b", from_checkpoint=False) == plain


def test_what_an_older_image_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="has 'more', of a newer ffdl: images are to be as new as who"):
        JobSpec.from_json(json.dumps({**json.loads(SPEC.to_json()), "more": 1}))


def test_one_that_keeps_no_results_is_refused() -> None:
    spec = replace(SPEC, results=None)
    with pytest.raises(Refused, match="training-a keeps no results"):
        job_file(spec.to_json().encode(), "training-a", from_checkpoint=True)
