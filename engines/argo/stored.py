"""A job's log files: from its volume while its helper runs, else from its results store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...learner import contract
from ..base import RESULTS
from .access import Api
from .carrier import Carrier, carrier
from .pods import MAIN

if TYPE_CHECKING:
    from ...workflows.site import Site

SHARED_LOGS = "_logs"  # in the results: what lies in LOG_DIR beside the learners' own folders


def beyond(helper: Carrier, offsets: Mapping[str, int]) -> dict[str, bytes]:
    """What files in LOG_DIR have beyond their offsets, a piece of it: empty when there is no more now."""
    answer, data = helper.ask_for_parts({"do": "tail", "from": dict(offsets)})
    found, begin = {}, 0
    for name, size in answer["parts"]:
        found[name] = data[begin : begin + size]
        begin += size
    return found


def helper(api: Api, pod: str) -> Carrier:
    """The helper's pod, which has the job's volume."""
    return Carrier(api, pod, MAIN, tries=1)


@contextmanager
def stored(api: Api, site: Site, job_id: str, names: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Files of the results store as files of this machine, for a while: `names` are those in LOG_DIR -> as stored."""
    with tempfile.TemporaryDirectory(prefix="ffdl-") as place:
        with carrier(api, site, job_id) as one:
            there = {file.name: file for file in one.list(RESULTS, empty=True)}
            files = [there[name] for name in names.values() if name in there]
            one.fetch(files, Path(place), "", lambda _: None)
        yield {own: Path(place, name) for own, name in names.items() if name in there}


@contextmanager
def on_volume(api: Api, pod: str, names: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """The same of the job's volume, by way of the helper's pod."""
    with tempfile.TemporaryDirectory(prefix="ffdl-") as place:
        one, offsets = helper(api, pod), dict.fromkeys(names, 0)
        try:
            while parts := beyond(one, offsets):
                for name, data in parts.items():
                    offsets[name] += len(data)
                    _append(Path(place, name), data)
        finally:
            one.close()
        yield {name: Path(place, name) for name, size in offsets.items() if size}


def _append(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "ab") as stream:
        stream.write(data)


def as_stored(name: str) -> str:
    """The name in the results of a file in LOG_DIR."""
    return name if contract.is_member_name(name.partition("/")[0]) and "/" in name else f"{SHARED_LOGS}/{name}"


def log_names(learners: int, name: str) -> dict[str, str]:
    """Where files called `name` may be: in each learner's folder and in LOG_DIR itself."""
    places = [name, *(f"{contract.learner_name(index)}/{name}" for index in range(learners))]
    return {place: as_stored(place) for place in places}
