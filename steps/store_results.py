"""`python -m ffdl.steps.store_results`: puts all that a job leaves into its results store, and proves that it is there.

Exit code 0: all is stored; 75: asked to stop; 70: something could not be stored: a red step that says what. It may be
run again at any time and stores only what is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from ..learner import contract
from . import journal, safe_files, ship, step
from .outside import workflow_of
from .program import in_step
from .retrying import Patience, Stop
from .shipping import Shipment, ship_checkpoints, ship_logs
from .storage import StoreError, credentials, open_store, retry_seconds
from .transfer import Item, Outcome

RETRY_SECONDS = 600.0
WAIT_ENV = "FFDL_WAIT_SECONDS"  # how long the exit step waits for them
SUCCEEDED = "Succeeded"


def store_results(stop: Stop) -> None:
    """Raises StoreError, Halted."""
    job = step.Job.load()
    outcome = os.environ.get(contract.OUTCOME_ENV, "")
    if outcome != SUCCEEDED:
        wait_for_writers(job, stop)
        if said := _reason_in_journal():
            tell_engine(said)  # where the helper could not
    if job.spec.results is None:
        step.say("the manifest asks for no results to be stored")
        return
    objects = open_store(job.spec.results, credentials(), "results")
    patience = Patience(retry_seconds(RETRY_SECONDS), stop.wait, step.say)
    skipped: list[str] = []

    def say(line: str) -> None:
        if line.startswith("not stored: "):
            skipped.append(line.removeprefix("not stored: "))
        step.say(line)

    shipment = Shipment(objects, job.id, ship.memory(), patience, stop, say)
    where = job.spec.result_dir(job.id)
    try:
        done = _store_files(shipment, job, where)
        checkpoints = ship_checkpoints(shipment, job.spec.checkpoint_keep, True, in_step(job.spec))
        logs = ship_logs(shipment)
        for part in (checkpoints, logs):
            done.stored |= part.stored
            done.missing |= part.missing
    except StoreError as error:
        raise StoreError(
            f"{error}; results are missing there; the files are still on the job's volume ({where})"
        ) from None
    if done.missing:
        first = next(iter(done.missing.values()))
        raise StoreError(
            f"{len(done.missing)} of {len(done.missing) + len(done.stored)} files are missing in {objects.where}, "
            f"the first: {first}; they are still on the job's volume ({where})"
        )
    _store_record(shipment, job, outcome, skipped)
    step.say(f"stored {len(done.stored)} files in {objects.where} under {job.id}/")


def _store_files(shipment: Shipment, job: step.Job, where: str) -> Outcome:
    items = {}
    copied = where.startswith(contract.path(contract.JOB_DIR) + "/")
    root = shipment.settled(where, contract.path(contract.JOB_DIR if copied else contract.RESULTS_ROOT))
    for name, _, _ in safe_files.walk(root, shipment.skipped(where)) if root is not None else ():
        items[f"{job.id}/{name}"] = Item(f"{job.id}/{name}", root or "", name)
    config = contract.path(contract.CONFIG_DIR)
    ours = {contract.SUBMITTED_CODE: contract.CODE_FILE, contract.MANIFEST_FILE: contract.MANIFEST_FILE}
    linked = []
    for key, name in ours.items():
        # A ConfigMap's files are links of the kubelet's; no user writes there.
        real = os.path.realpath(f"{config}/{name}")
        if os.path.exists(real):
            linked.append(Item(f"{job.id}/{key}", os.path.dirname(real), os.path.basename(real)))
    for item in linked:
        items[item.key] = item
    for key in [key for key in items if key == f"{job.id}/{contract.RECORD_FILE}"]:
        shipment.say(f"not stored: {where}/{contract.RECORD_FILE}: the job's own record has this name")
        del items[key]
    return shipment.upload(list(items.values()), f"{job.id}/")


def _store_record(shipment: Shipment, job: step.Job, outcome: str, skipped: list[str]) -> None:
    """`status.json`: written last, so that a record means that everything else is there."""
    prefix = f"{job.id}/"
    memory = shipment.memory
    entries = shipment.patience.run(lambda: list(shipment.objects.list(prefix)))
    files = []
    for entry in sorted(entries, key=lambda entry: entry.key):
        name = entry.key.removeprefix(prefix)
        if name != contract.RECORD_FILE:
            digest = memory.digest(entry.key, entry.tag)
            files.append({"name": name, "size": entry.size} | ({"digest": digest} if digest else {}))
    now = time.time()
    record: dict[str, Any] = {
        "format": 1,
        "id": job.id,
        "name": job.spec.name,
        "outcome": outcome or SUCCEEDED,
        "reason": reason_so_far(job.id),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "files": files,
    }
    if skipped:
        record["skipped"] = skipped
    text = json.dumps(record, indent=1, sort_keys=True).encode("ascii") + b"\n"
    shipment.patience.run(lambda: shipment.objects.write(prefix + contract.RECORD_FILE, text))


def wait_for_writers(job: step.Job, stop: Stop) -> None:
    """Until no learner or helper pod runs, within a bound: Argo starts the exit step while they still write."""
    bound = float(os.environ.get(WAIT_ENV) or job.spec.halt_grace + 2 * contract.KILL_GRACE)
    end = time.monotonic() + bound
    outside = workflow_of(job.id)
    while writing := outside.writers():
        if time.monotonic() >= end:
            step.say(f"still running after {bound:.0f} s, not waited for any longer: {', '.join(writing)}")
            return
        stop.wait(outside.poll)


def reason_so_far(job_id: str) -> str:
    """Why the job failed, if anyone has said: the Workflow's annotation, else what was left in the journal."""
    said = workflow_of(job_id).annotations().get(contract.ANNOTATION_REASON)
    return str(said) if said else _reason_in_journal()


def _reason_in_journal() -> str:
    folder = contract.path(contract.JOURNAL_DIR)
    failure = f"{folder}/{contract.FAILURES_DIR}/download.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(failure, encoding="utf-8") as stream:
        return str(json.load(stream)["reason"])
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return journal.read(folder).ended
    return ""


def tell_engine(reason: str) -> None:
    """Notes the reason on the Workflow, unless there is one already."""
    outside = workflow_of(os.environ.get(contract.JOB_ID_ENV, ""))
    if not outside.annotations().get(contract.ANNOTATION_REASON):
        outside.annotate({contract.ANNOTATION_REASON: reason})


def main() -> None:
    step.run("store-results", store_results, failed=tell_engine)


if __name__ == "__main__":
    main()
