"""What a job has stored, brought to this machine or removed from its store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...learner import contract
from ..base import CHECKPOINT, DEFINITION, RESULTS, TRAINEDMODEL, Refused
from . import objects, records
from .access import CONFIG_MAPS, Api
from .carrier import carrier

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
    target.write_bytes(submitted_code(api, site(), job_id))
    return target


def submitted_code(api: Api, site: Site, job_id: str) -> bytes:
    """The code of a job in whose ConfigMap it had no room. Raises Refused."""
    with carrier(api, site, job_id) as one, tempfile.TemporaryDirectory(prefix="ffdl-") as place:
        found = [file for file in one.list(RESULTS, empty=True) if file.name == contract.SUBMITTED_CODE]
        if not found:
            raise Refused(f"the code of {job_id} is neither in the cluster nor among its results")
        one.fetch(found, Path(place), "", lambda _: None)
        return Path(place, contract.SUBMITTED_CODE).read_bytes()


def remove(api: Api, site: Site, job_id: str) -> None:
    """All that the job has stored."""
    record = records.find(api, job_id)
    if record is None or contract.JobSpec.from_json(record["data"][objects.JOB_KEY]).results is None:
        return
    with carrier(api, site, job_id) as one:
        one.ask({"do": "remove"})
