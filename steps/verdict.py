"""What becomes of a learner whose command failed: a pure function from the job, its journal and the failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..learner import contract
from .journal import Record, State
from .members import words

CRASH, OUT_OF_MEMORY, AGAIN, KILLED = "crash", "out-of-memory", "again", "killed"  # a failure's reason
AGAIN_MOST = 5  # a user's own 75s without a new checkpoint between them
_RETRIED_ALWAYS = (contract.EXIT_AGAIN, 137, 143)  # exit codes that Argo retries whatever the manifest says


@dataclass(frozen=True)
class Verdict:
    """`record` goes into the journal, then the agent exits with `code`. `reason`, if any, ends the whole job."""

    record: Record
    code: int
    reason: str = ""


def judge(spec: contract.JobSpec, state: State, index: int, failure: dict[str, Any]) -> Verdict:
    """The verdict on member `index`, which failed as the FAILED message `failure` says.

    A granted restart exits with the user's own code, for the record; a final failure with one that is not retried.
    """
    kind, code = str(failure.get("reason", CRASH)), _code(failure.get("code"))
    who = words(index)
    if kind == AGAIN:
        progressed = bool(failure.get("progressed"))
        times = 1 if progressed else state.again.get(index, 0) + 1
        if times <= AGAIN_MOST:
            return Verdict({"kind": "again", "index": index, "progressed": progressed}, contract.EXIT_AGAIN)
        what = f"{who} asked to be started again {times} times without a new checkpoint between them"
        return _final(index, contract.EXIT_FINAL, what)
    granted = state.granted.get(index, 0)
    if granted < spec.retry_attempts and (OUT_OF_MEMORY if kind == OUT_OF_MEMORY else CRASH) in spec.retry_on:
        if kind == OUT_OF_MEMORY:
            code = 137  # retried whatever else the manifest grants
        elif code in (contract.EXIT_ARGO, contract.EXIT_FINAL):
            code = contract.EXIT_AGAIN
        return Verdict({"kind": "granted", "index": index}, code)
    if kind == OUT_OF_MEMORY:
        limit = failure.get("limit")
        what = f"{who} ran out of memory" + (f" (limit {size(limit)})" if isinstance(limit, int) else "")
    elif kind == KILLED:
        what = f"{who} was killed (exit code {code}) again and again, last within moments of its start"
    else:
        what = f"{who} exited with code {code}"
    if spec.retry_attempts and granted:
        what += f", after {granted} restart{'s' if granted > 1 else ''}"
    retried = spec.retry_attempts > 0 or code in _RETRIED_ALWAYS or kind == OUT_OF_MEMORY
    return _final(index, contract.EXIT_FINAL if retried else code, what)


def size(count: int) -> str:
    """`count` bytes, for people: 512 MiB."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{round(count / factor, 1):g} {unit}"
    return f"{count} B"


def _final(index: int, code: int, reason: str) -> Verdict:
    return Verdict({"kind": "ended", "index": index, "code": code, "reason": reason}, code, reason)


def _code(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 256 else 1
