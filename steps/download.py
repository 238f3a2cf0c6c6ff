"""`python -m ffdl.steps.download`: brings a job's code, data and last checkpoint to its volume. Run again, it goes on.

Exit code 0: all is there; 75: asked to stop, what is verified stays; 70: something is missing for good, said in a line.
"""

from __future__ import annotations

import contextlib
import os

from ..learner import contract
from . import archive, restore, step
from .fetch import Arrived, fetch_all
from .program import in_step
from .retrying import Patience, Stop
from .storage import Objects, StoreError, credentials, open_store, retry_seconds

RETRY_SECONDS = 300.0
ARRIVED_FILE = "downloaded.jsonl"  # in JOURNAL_DIR
CONTINUED_FILE = "continued"  # in JOURNAL_DIR: what the job goes on from is there
STAGING_DIR = contract.JOB_DIR + "/.ffdl"


def download(stop: Stop) -> None:
    """Raises StoreError, Halted."""
    job = step.Job.load()
    patience = Patience(retry_seconds(RETRY_SECONDS), stop.wait, step.say)
    results = open_store(job.spec.results, credentials(), "results") if job.spec.results is not None else None
    patience.run(lambda: make_folders(job))
    patience.run(lambda: bring_code(job, results, stop))
    bring_data(job, patience, stop)
    if results is not None:
        bring_checkpoint(job, results, patience, stop)


def make_folders(job: step.Job) -> None:
    """The folders that a learner finds (CONTRACT of FfDL): writable for all, their group handed on."""
    spec = job.spec
    folders = [contract.path(contract.JOB_DIR), contract.path(contract.LOG_DIR), contract.path(contract.CHECKPOINT_DIR)]
    folders += [f"{contract.path(contract.LOG_DIR)}/{contract.learner_name(index)}" for index in range(spec.learners)]
    folders += [contract.path(contract.DATA_ROOT), spec.result_bucket_dir(), spec.result_dir(job.id)]
    if spec.data is not None:
        folders.append(os.path.dirname(spec.data_dir()) if spec.data.kind == "host" else spec.data_dir())
    for folder in folders:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the folder {folder} can't be made: {error.strerror}") from None
        with contextlib.suppress(OSError):  # a mount point may belong to someone else
            os.chmod(folder, 0o2777)


def bring_code(job: step.Job, results: Objects | None, stop: Stop) -> None:
    """Unpacks the code into MODEL_DIR: the submitted one, else what lies in the results store for this job."""
    zipped, fetched = step.config_file(contract.CODE_FILE), ""
    if not os.path.exists(zipped):
        key = f"{job.id}/{contract.SUBMITTED_CODE}"
        entry = results.find(key) if results is not None else None
        if results is None or entry is None:
            place = f": no {key} in {results.where}" if results is not None else ""
            raise StoreError(f"there is no code to run{place}", permanent=True)
        zipped = fetched = f"{contract.path(contract.JOB_DIR)}/.ffdl-code.zip"
        try:
            with open(fetched, "wb") as stream:
                results.fetch(entry, stream.fileno(), 0, entry.size, lambda _: stop.check())
        except FileNotFoundError:
            raise StoreError(f"{key} is gone from {results.where}") from None
        except OSError as error:
            raise StoreError(f"the job's volume can't be written: {error.strerror}") from None
    archive.unpack(zipped, contract.path(contract.MODEL_DIR), contract.path(STAGING_DIR))
    if fetched:
        os.unlink(fetched)


def bring_checkpoint(job: step.Job, results: Objects, patience: Patience, stop: Stop) -> None:
    """The last checkpoint of the job that it goes on from, once; then its own, where its volume was lost."""
    root, members = contract.path(contract.CHECKPOINT_DIR), in_step(job.spec)

    def restored(job_id: str) -> bool:
        return restore.restore(results, f"{job_id}/checkpoints/", root, patience, stop, step.say, members)

    other, begun = job.spec.continues, contract.path(f"{contract.JOURNAL_DIR}/{CONTINUED_FILE}")
    if other and not os.path.exists(begun):  # a part of it may be there already, and have been stored as this job's
        step.say(f"going on from {other}")
        if not restored(other):
            raise StoreError(f"there is no checkpoint of {other} in {results.where}", permanent=True)
        if not restore.is_there(root, members):
            raise StoreError(f"no checkpoint of {other} in {results.where} is whole", permanent=True)
        contract.atomic_write(begun, b"")
    restored(job.id)


def bring_data(job: step.Job, patience: Patience, stop: Stop) -> None:
    """Copies the training data into DATA_DIR, or, where it is a folder of this machine, links it there."""
    store, folder = job.spec.data, job.spec.data_dir()
    if store is None:
        return
    if store.kind == "host":
        patience.run(lambda: link(contract.path(contract.HOST_DATA_DIR), folder))
        return
    objects = open_store(store, credentials(), "data")
    entries = patience.run(lambda: list(objects.list("")))
    total = sum(entry.size for entry in entries)
    step.say(f"{len(entries)} files, {total / 1e6:.1f} MB of training data in {objects.where}")
    progress = step.Progress(total)
    with Arrived(contract.path(f"{contract.JOURNAL_DIR}/{ARRIVED_FILE}")) as arrived:
        count = fetch_all(objects, entries, "", folder, arrived, patience, stop, progress.advance)
    progress.finish()
    step.say(f"all of it is in {folder}; {count} files were fetched")


def link(target: str, name: str) -> None:
    """Makes `name` a symlink to the folder `target`."""
    if not os.path.isdir(target):
        raise StoreError(f"the data store's folder is not there ({target})", permanent=True)
    try:
        if os.path.islink(name):
            if os.readlink(name) == target:
                return
            os.unlink(name)
        elif os.path.isdir(name):
            os.rmdir(name)
        os.symlink(target, name)
    except OSError as error:
        raise StoreError(f"{name} can't become a link to the data: {error.strerror}") from None


def main() -> None:
    os.umask(0)  # learners may have any user and write to all of it
    marker = contract.path(f"{contract.HELPER_DIR}/{contract.HALTED_FILE}")
    step.run("download", download, marker=marker)


if __name__ == "__main__":
    main()
