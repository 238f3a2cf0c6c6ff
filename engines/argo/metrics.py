"""EMetrics records of a job's learners."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...learner import contract
from ..status import HALTED
from . import stored
from .access import WORKFLOWS, Api, Object
from .carrier import Carrier
from .errors import ApiError
from .exec import Lost
from .patience import patiently
from .pods import attempts, live
from .reasons import status_of

if TYPE_CHECKING:
    from ...workflows.site import Site

LOOK = 1.0  # seconds between two looks
_PARTS = ("meta", "etimes", "values")  # of a record


class Records:
    """Reads on where it has left off, wherever the files are."""

    def __init__(self, api: Api, site: Callable[[], Site], job_id: str, learners: int) -> None:
        self._api, self._site, self._job_id = api, site, job_id
        self._names = stored.log_names(learners, contract.METRICS_FILE)
        self._offsets = dict.fromkeys(self._names, 0)
        self._helper: tuple[str, Carrier] | None = None

    def from_volume(self, pod: str) -> list[dict[str, Any]]:
        """New records, by way of the helper's pod. Raises Lost, ApiError when it goes meanwhile."""
        if self._helper is None or self._helper[0] != pod:
            self.close()
            self._helper = (pod, stored.helper(self._api, pod))
        found: list[dict[str, Any]] = []
        while parts := stored.beyond(self._helper[1], self._offsets):
            grown = [self._take(name, data, found) for name, data in parts.items()]
            if not any(grown):  # half a line at the end of each
                break
        return sorted(found, key=_when)

    def from_store(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with stored.stored(self._api, self._site(), self._job_id, self._names) as files:
            for name, file in files.items():
                with open(file, "rb") as stream:
                    stream.seek(self._offsets[name])
                    self._take(name, stream.read(), found)
        return sorted(found, key=_when)

    def _take(self, name: str, data: bytes, found: list[dict[str, Any]]) -> bool:
        """Whole lines are records, if they are; no bad line of a learner's is believed."""
        whole = data.rfind(b"\n") + 1
        self._offsets[name] += whole
        for raw in data[:whole].splitlines():
            with suppress(ValueError, RecursionError):
                value = json.loads(raw)
                if isinstance(value, dict) and all(isinstance(value.get(part, {}), dict) for part in _PARTS):
                    found.append(value)
        return bool(whole)

    def close(self) -> None:
        if self._helper is not None:
            self._helper[1].close()
            self._helper = None


def metrics(
    api: Api, site: Callable[[], Site], job_id: str, workflow: Object | None, learners: int, follow: bool
) -> Iterator[dict[str, Any]]:
    """Oldest first; `follow` until the job has ended or is halted. `workflow` is None when it is gone."""
    records = Records(api, site, job_id, learners)
    try:
        while workflow is not None:
            status = patiently(partial(status_of, api, workflow))
            over = status.terminal or status.state == HALTED
            yield from _now(records, workflow, over)
            if over or not follow:
                return
            time.sleep(LOOK)
            workflow = patiently(partial(api.find, WORKFLOWS, job_id))
        yield from records.from_store()
    finally:
        records.close()


def _now(records: Records, workflow: Object, over: bool) -> list[dict[str, Any]]:
    if not any(attempt.learner and attempt.begun for attempt in attempts(workflow)):
        return []
    if not over:
        for pod in live(workflow, "checkpoint", ("Running",)):
            with suppress(Lost, ApiError):
                return records.from_volume(pod)
    return records.from_store() if over else []


def _when(record: dict[str, Any]) -> float:
    moment = record.get("meta", {}).get("time")
    return moment if isinstance(moment, (int, float)) else 0.0
