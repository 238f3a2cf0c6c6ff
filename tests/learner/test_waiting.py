"""Whether a pod that does not start ever will, from the words that real clusters used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.learner import waiting

SEEN: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "waiting.yaml").read_text())


def said(case: dict[str, Any]) -> str:
    return str(case.get("events") or case["argo"])


@pytest.mark.parametrize("case", [case for case in SEEN if "is" in case], ids=lambda case: case["case"])
def test_no_room_is_waited_for_and_what_can_never_start_is_not(case: dict[str, Any]) -> None:
    """A job in the queue must not be failed for it, and one that asks for 9 GPUs of 8 must not wait for ever."""
    assert waiting.judge(said(case)) == case["is"]


@pytest.mark.parametrize("case", [case for case in SEEN if "never" in case], ids=lambda case: case["case"])
def test_an_attempt_that_was_refused_is_told_from_one_that_ran(case: dict[str, Any]) -> None:
    """Argo tries a refused pod again every five seconds, for ever: somebody has to notice that it will never do."""
    assert waiting.never_began(case["argo"]) == case["never"]


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "uid": "1"}, "status": {"phase": "Pending", **status}}


def event(kind: str, reason: str, message: str, time: str, uid: str = "1") -> dict[str, Any]:
    return {
        "type": kind, "reason": reason, "message": message, "involvedObject": {"uid": uid},
        "lastTimestamp": f"2026-11-21T05:40:{time}Z",
    }  # fmt: skip


def test_a_pod_is_read_wherever_its_cluster_says_why_it_waits() -> None:
    """Argo's own message is only "PodInitializing" for an init image that can't be pulled and for any mount."""
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    assert waiting.pod_message(pod(conditions=[unscheduled])) == "Unschedulable: 0/1 nodes"
    init = {"name": "agent", "state": {"waiting": {"reason": "ErrImagePull", "message": "no\nsuch image"}}}
    main = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    assert waiting.pod_message(pod(initContainerStatuses=[init], containerStatuses=[main])) == (
        "ErrImagePull: no such image"
    )
    mount = event("Warning", "FailedMount", 'secret "nope" not found', "05")
    said = waiting.pod_message(pod(containerStatuses=[main]), [event("Normal", "Scheduled", "", "05"), mount])
    assert said == 'FailedMount: secret "nope" not found'
    assert waiting.pod_message(pod(phase="Running"), [mount]) == ""


def test_a_warning_that_has_been_overcome_is_not_held_against_a_pod() -> None:
    """A pod whose volume was late and which now pulls a large image is on its way."""
    late = event("Warning", "FailedMount", "not yet", "05")
    pulling = event("Normal", "Pulling", "a large image", "09")
    assert waiting.pod_message(pod(), [late, pulling]) == ""
    assert waiting.pod_message(pod(), [pulling, event("Warning", "FailedMount", "another's", "12", uid="2")]) == ""
    assert waiting.pod_message(pod(), [pulling, event("Warning", "FailedScheduling", "0/1 nodes", "09")]) == ""
