"""`python -m ffdl.steps.retrieve WHAT [FOLDER]`: brings what a job has stored into a folder, or removes it.

WHAT is `results` (all of it), `trainedmodel` (the user's own files), `checkpoint` (the last checkpoints, or a script's
own files) or `remove`. Exit code 0, 75 (asked to stop), or 70 with one line that says what is missing.
"""

from __future__ import annotations

import os
import re
import sys
from functools import partial

from ..learner import contract
from ..learner.checkpoint import COMMITTED
from . import step
from .fetch import Arrived, fetch_all
from .retrying import Patience, Stop
from .storage import Entry, Objects, StoreError, credentials, open_store, retry_seconds

RETRY_SECONDS = 60.0
CHECKPOINTS = "checkpoints/"
NOT_THE_MODEL = ("_submitted_code/", "_logs/", CHECKPOINTS, "learner-", "parameter-server-")
_STEP = re.compile(r"checkpoints/((?:(?:learner|parameter-server)-\d+/)?)step-(\d+)/")
NOTES_OF_ARRIVAL = ".ffdl-arrived"


def wanted(what: str, names: list[str]) -> list[str]:
    """Those of a job's stored `names` that `what` means."""
    if what == "checkpoint":
        return _last_checkpoints([name for name in names if name.startswith(CHECKPOINTS)])
    if what == "trainedmodel":
        ours = (contract.RECORD_FILE, contract.MANIFEST_FILE)
        return [name for name in names if not name.startswith(NOT_THE_MODEL) and name not in ours]
    return names


def missing(objects: Objects, what: str, job: step.Job) -> StoreError:
    """Why there is nothing to fetch."""
    why = ": its script has written nothing into RESULT_DIR" if what == "trainedmodel" else ""
    return StoreError(f"{objects.where} has no {what} of {job.id}{why}", permanent=True)


def _last_checkpoints(names: list[str]) -> list[str]:
    """Of each learner's committed steps the last, and what lies in none: a script's own files."""
    last: dict[str, int] = {}
    for name in names:
        if (found := _STEP.match(name)) and name == f"{found[0]}{COMMITTED}":
            last[found[1]] = max(last.get(found[1], -1), int(found[2]))
    return [name for name in names if not (found := _STEP.match(name)) or last.get(found[1]) == int(found[2])]


def _stored(objects: Objects, job: step.Job, patience: Patience) -> list[Entry]:
    entries = patience.run(lambda: list(objects.list(f"{job.id}/")))
    if not entries:
        raise StoreError(f"{objects.where} has nothing of {job.id}", permanent=True)
    return entries


def retrieve(stop: Stop, what: str, folder: str) -> None:
    """Raises StoreError, Halted."""
    job = step.Job.load()
    if job.spec.results is None:
        raise StoreError("the manifest asks for no results to be stored", permanent=True)
    objects = open_store(job.spec.results, credentials(), "results")
    patience = Patience(retry_seconds(RETRY_SECONDS), stop.wait, step.complain)
    prefix = f"{job.id}/"
    if what == "remove":
        for entry in patience.run(lambda: list(objects.list(prefix))):
            patience.run(partial(objects.delete, entry.key))
        return
    entries = {entry.key.removeprefix(prefix): entry for entry in _stored(objects, job, patience)}
    names = wanted(what, list(entries))
    if not names:
        raise missing(objects, what, job)
    strip = prefix + (CHECKPOINTS if what == "checkpoint" else "")
    os.makedirs(folder, exist_ok=True)
    notes = f"{folder}/{NOTES_OF_ARRIVAL}"
    with Arrived(notes) as arrived:
        fetch_all(objects, [entries[name] for name in names], strip, folder, arrived, patience, stop, lambda _: None)
    os.unlink(notes)


def main(what: str, folder: str = "") -> None:
    step.run("retrieve", lambda stop: retrieve(stop, what, folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
