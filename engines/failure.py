"""Why a job failed: one line, FfDL's error code and the learner's exit code, read off a failed Workflow. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..learner import contract
from .nodes import STORE_ROLES, NodeStatus, one_line, words

NO_RESOURCES, IMAGE_PULL, POD_FAILED = "S100", "S103", "S104"
LOAD_MODEL, LOAD_DATA, STORE_RESULTS = "S301", "S302", "S303"
LEARNER_CRASH = "C201"
_EXITED = re.compile(r"^learner \d+ exited with code (\d+)")


@dataclass(frozen=True)
class Failure:
    """Why a job failed: one line, FfDL's code, and the exit code of the learner that failed."""

    reason: str = ""
    code: str = ""
    exit_code: int | None = None


def failure(workflow: dict[str, Any], nodes: list[NodeStatus], summary: Mapping[str, Any]) -> Failure:
    """What a FAILED job's record says of its end: the helper's words if it left any, else the nodes'."""
    status, annotations = workflow.get("status") or {}, workflow.get("metadata", {}).get("annotations") or {}
    said = one_line(annotations.get(contract.ANNOTATION_REASON, ""))
    failed = [node for node in nodes if node.phase in ("Failed", "Error")]
    own = [node for node in failed if node.learner and node.exit_code not in (contract.EXIT_FINAL, contract.EXIT_AGAIN)]
    stopped = contract.ANNOTATION_STOP in annotations or bool(workflow.get("spec", {}).get("shutdown"))
    download = next((node for node in failed if node.role == "download"), None)
    store = next((node for node in failed if node.role in STORE_ROLES), None)
    if own and not stopped:
        first = min(own, key=lambda node: node.finished or 0.0)
        lost = "" if store is None else f"; results could not be stored: {_message(store)}"
        return Failure((said or _learner_failure(first, summary)) + lost, LEARNER_CRASH, first.exit_code)
    if download is not None and (not stopped or said.startswith("download")):
        reason = said or f"download failed: {_message(download)}"
        return Failure(reason, LOAD_MODEL if "code" in reason.replace("exit code", "") else LOAD_DATA)
    if stopped:
        return Failure(said or "stopped", _cannot_start_code(said))
    if store is not None:
        return Failure(said or f"results could not be stored: {_message(store)}", STORE_RESULTS)
    if failed:
        code = LEARNER_CRASH if said.startswith("learner") else POD_FAILED
        exited = _EXITED.search(said)  # with restarts granted, the last attempt itself exits with 70
        reason = said or f"{words(failed[0])} failed: {_message(failed[0])}"
        return Failure(reason, code, int(exited[1]) if exited else None)
    return Failure(said or one_line(status.get("message") or "") or "failed for a reason that was not recorded")


def _learner_failure(node: NodeStatus, summary: Mapping[str, Any]) -> str:
    if "OOMKilled" in node.message:
        limit = summary.get("memory")
        return f"{words(node)} ran out of memory" + (f" (its limit is {memory_words(limit)})" if limit else "")
    if node.exit_code is None or node.exit_code < 0:
        return f"{words(node)} failed: {_message(node)}"
    return f"{words(node)} exited with code {node.exit_code}"


def _message(node: NodeStatus) -> str:
    return one_line(node.message.removeprefix("main: ")) or (
        f"exit code {node.exit_code}" if node.exit_code is not None else "no reason was given"
    )


def _cannot_start_code(reason: str) -> str:
    """FfDL's code for a job that was ended because its pods could not start, by the cluster's own words."""
    lower = reason.lower()
    if "unschedulable" in lower or "insufficient" in lower:
        return NO_RESOURCES
    if "image" in lower:
        return IMAGE_PULL
    return ""


def memory_words(size: float) -> str:
    """Bytes as people write them: the largest unit that leaves a short number."""
    for unit, name in ((2**30, "GiB"), (10**9, "GB"), (2**20, "MiB"), (10**6, "MB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit:g} {name}"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
