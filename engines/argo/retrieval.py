"""What a job has stored, brought to this machine or removed from its store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...learner import contract
from ..base import CHECKPOINT, DEFINITION, RESULTS, TRAINEDMODEL, Refused
from . import objects, records
from .access import CONFIG_MAPS, Api
from .carrier import File, carrier

if TYPE_CHECKING:
    from ...workflows.site import Site

CHECKPOINTS = "checkpoints/"


def download(
    api: Api, site: Callable[[], Site], job_id: str, what: str, folder: Path, progress: Callable[[int, int], None]
) -> Path:
    """Writes it under `folder`; returns what was written. `progress` hears how many bytes of how many are here."""
    if what == DEFINITION:
        return _definition(api, site, job_id, folder)
    if what not in (RESULTS, TRAINEDMODEL, CHECKPOINT):
        raise Refused(f"nothing called {what} to download")
    target = folder / f"{job_id}-{what}"
    with carrier(api, site(), job_id) as one:
        files = one.list(what)
        total, done = sum(file.size for file in files), 0

        def advance(size: int) -> None:
            nonlocal done
            done += size
            progress(min(done, total), total)

        one.fetch(files, target, CHECKPOINTS if what == CHECKPOINT else "", advance)
    return target


def _definition(api: Api, site: Callable[[], Site], job_id: str, folder: Path) -> Path:
    """The code as submitted: from the cluster, else from the results."""
    target = folder / f"{job_id}-definition.zip"
    files = objects.decoded((api.find(CONFIG_MAPS, job_id) or {}).get("binaryData"))
    folder.mkdir(parents=True, exist_ok=True)
    if contract.CODE_FILE in files:
        target.write_bytes(files[contract.CODE_FILE])
        return target
    with carrier(api, site(), job_id) as one:
        found = [file for file in one.list(RESULTS) if file.name == contract.SUBMITTED_CODE]
        if not found:
            raise Refused(f"{job_id} was submitted without code")
        one.fetch([File(*found[0])], folder, contract.SUBMITTED_CODE.rpartition("/")[0] + "/", lambda _: None)
    (folder / contract.SUBMITTED_CODE.rpartition("/")[2]).replace(target)
    return target


def remove(api: Api, site: Site, job_id: str) -> None:
    """All that the job has stored."""
    record = records.find(api, job_id)
    if record is None or contract.JobSpec.from_json(record["data"][objects.JOB_KEY]).results is None:
        return
    with carrier(api, site, job_id) as one:
        one.ask({"do": "remove"})
