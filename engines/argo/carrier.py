"""A short-lived pod that stands beside a job's results store: this machine may reach neither store nor volume."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...learner import contract
from ...workflows.site import OUR_USER
from ..base import EngineError
from . import objects
from .access import CONFIG_MAPS, PODS, WORKFLOWS, Api, Object
from .exec import Exec, Lost
from .pods import CARRIER_ROLE

if TYPE_CHECKING:
    from ...workflows.site import Site

DEADLINE = 6 * 3600  # seconds after which Kubernetes ends a carrier, whatever happens
START_PATIENCE = 120.0
TRIES = 5
POLL = 0.2
CONTAINER = "main"
TALK = ["python3", "-m", "ffdl.steps.carry"]
UNFINISHED = ".ffdl-download"


class File(NamedTuple):
    name: str
    size: int  # bytes
    tag: str


class Carrier:
    """A conversation with `ffdl.steps.carry` in a pod; begun anew when it breaks. Raises EngineError."""

    def __init__(self, api: Api, pod: str, container: str = CONTAINER, tries: int = TRIES) -> None:
        self._api, self._pod, self._container, self._tries = api, pod, container, tries
        self._talk: Exec | None = None

    def ask(self, request: dict[str, Any], data: bytes = b"") -> dict[str, Any]:
        """One request (and the bytes that belong to it), one answer."""
        answer: dict[str, Any] = self._trying(lambda: self._ask(request, data))
        return answer

    def list(self, what: str, empty: bool = False) -> list[File]:
        """What is stored of the job; where that is nothing, an error unless `empty` is fine."""
        return [File(*entry) for entry in self.ask({"do": "list", "what": what, "empty": empty})["files"]]

    def fetch(self, files: Sequence[File], folder: Path, strip: str, progress: Callable[[int], None]) -> None:
        """Writes them beneath `folder`, `strip` taken from the front of their names. `progress` hears of bytes."""
        targets = {file.name: folder / _beneath(file.name.removeprefix(strip)) for file in files}
        unfinished = folder / UNFINISHED
        folder.mkdir(parents=True, exist_ok=True)
        left = list(files)

        def go_on() -> None:
            begin = unfinished.stat().st_size if left and unfinished.exists() else 0
            wanted = [[file.name, file.size, file.tag, 0] for file in left]
            if wanted:
                wanted[0][3] = begin = min(begin, left[0].size)
                self._begin().send(_line({"do": "send", "files": wanted}))
            while left:
                self._arrive(left[0], begin, unfinished, targets[left[0].name], progress)
                del left[0]
                begin = 0

        unfinished.unlink(missing_ok=True)
        self._trying(go_on)

    def _arrive(self, file: File, begin: int, unfinished: Path, target: Path, progress: Callable[[int], None]) -> None:
        talk = self._begin()
        self._answer(talk)
        digest = hashlib.md5(usedforsecurity=False)
        with open(unfinished, "ab" if begin else "wb") as stream:

            def keep(piece: bytes) -> None:
                stream.write(piece)
                digest.update(piece)
                progress(len(piece))

            talk.read(file.size - begin, keep)
        proof = self._answer(talk)
        if proof["md5"] != digest.hexdigest() or proof["doubtful"]:
            unfinished.unlink()
            raise Lost(f"{file.name} has not arrived whole")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(unfinished, target)

    def _ask(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        talk = self._begin()
        talk.send(_line(request) + data)
        return self._answer(talk)

    def ask_for_parts(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """One request, one answer and the bytes that its `parts` (name, size) announce."""

        def go() -> tuple[dict[str, Any], bytes]:
            pieces: list[bytes] = []
            answer = self._ask(request, b"")
            self._begin().read(sum(size for _, size in answer["parts"]), pieces.append)
            return answer, b"".join(pieces)

        found: tuple[dict[str, Any], bytes] = self._trying(go)
        return found

    def _answer(self, talk: Exec) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(talk.readline())
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer

    def _begin(self) -> Exec:
        if self._talk is None:
            self._talk = Exec(self._api, self._pod, self._container, TALK)
        return self._talk

    def _trying(self, action: Callable[[], Any]) -> Any:
        """A conversation that breaks off is begun again, a few times."""
        for tries in range(1, self._tries + 1):
            try:
                return action()
            except Lost:
                self.close()
                if tries == self._tries:
                    raise
                time.sleep(POLL * 2**tries)
            except BaseException:
                self.close()  # nobody knows what would come next
                raise
        return None

    def close(self) -> None:
        if self._talk is not None:
            self._talk.close()
            self._talk = None


@contextmanager
def carrier(api: Api, site: Site, job_id: str) -> Iterator[Carrier]:
    """A pod beside the store of a job, gone afterwards. Raises EngineError."""
    record = api.find(CONFIG_MAPS, job_id + objects.RECORD)
    if record is None:
        raise EngineError(f"{job_id} has no record any more (ConfigMap {job_id}{objects.RECORD}): its store is unknown")
    workflow = api.find(WORKFLOWS, job_id)
    owner = objects.owned_by(WORKFLOWS, workflow) if workflow else objects.owned_by(CONFIG_MAPS, record)
    name = f"{job_id}-carrier-{os.urandom(3).hex()}"
    try:
        api.create(PODS, pod(site, job_id, name, record, owner))
        _until_running(api, name)
        one = Carrier(api, name)
        try:
            yield one
        finally:
            one.close()
    finally:
        with suppress(EngineError):
            api.delete(PODS, name, grace=0)


def send_code(api: Api, site: Site, job_id: str, code: bytes) -> None:
    """Puts a job's code, too large for its ConfigMap, where the job's first step looks for it."""
    digest = hashlib.md5(code, usedforsecurity=False).hexdigest()
    request = {"do": "receive", "name": contract.SUBMITTED_CODE, "size": len(code), "md5": digest}
    with carrier(api, site, job_id) as one:
        one.ask(request, code)


def pod(site: Site, job_id: str, name: str, record: Object, owner: list[Object]) -> Object:
    """The pod, with the job's store mounted as its steps have it."""
    data = record["data"]
    spec = contract.JobSpec.from_json(data[objects.JOB_KEY])
    record_file = {"name": job_id + objects.RECORD, "items": [{"key": objects.JOB_KEY, "path": contract.JOB_FILE}]}
    volumes: list[Object] = [{"name": "config", "configMap": record_file}, {"name": "run", "emptyDir": {}}]
    mounts: list[Object] = [
        {"name": "config", "mountPath": contract.CONFIG_DIR, "readOnly": True},
        {"name": "run", "mountPath": contract.RUN_DIR},
    ]
    if secret := data.get(objects.STORE_SECRET_KEY):
        volumes.append({"name": "store-credentials", "secret": {"secretName": secret}})
        mounts.append({"name": "store-credentials", "mountPath": contract.STORE_SECRET_DIR, "readOnly": True})
    if spec.results is not None and spec.results.kind == "claim":
        volumes.append({"name": "results", "persistentVolumeClaim": {"claimName": contract.RESULTS_CLAIM}})
        mounts.append({"name": "results", "mountPath": contract.STORE_DIR})
    if host := data.get(objects.HOST_RESULTS_KEY):
        volumes.append({"name": "host-results", "hostPath": {"path": host, "type": "DirectoryOrCreate"}})
        mounts.append({"name": "host-results", "mountPath": contract.HOST_RESULTS_DIR})
    ours = {"runAsNonRoot": True, "runAsUser": OUR_USER, "runAsGroup": OUR_USER}
    container = {
        "name": CONTAINER,
        "image": site.image("ffdl-steps"),
        "imagePullPolicy": site.pull_policy,
        "command": [*TALK, "wait"],
        "env": [{"name": contract.JOB_ID_ENV, "value": job_id}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": ours
        | {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }
    return {
        "metadata": objects.metadata(job_id, owners=owner, labels={contract.LABEL_ROLE: CARRIER_ROLE}) | {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": ours
            | {
                "fsGroup": OUR_USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": volumes,
        },
    }


def _until_running(api: Api, name: str) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while True:
        found = api.get(PODS, name)
        status = found.get("status") or {}
        if status.get("phase") == "Running":
            return
        why = _why_not(status)
        if status.get("phase") in ("Succeeded", "Failed") or time.monotonic() > deadline:
            raise EngineError(
                f"the pod that carries files to and from the store does not run: {why or 'no reason known'}"
            )
        time.sleep(POLL)


def _why_not(status: Object) -> str:
    for container in status.get("containerStatuses") or ():
        for state in (container.get("state") or {}).values():
            if state.get("message") or state.get("reason"):
                return f"{state.get('reason') or ''}: {state.get('message') or ''}".strip(": ")
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return str(condition["message"])
    return str(status.get("message") or "")


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode("ascii") + b"\n"


def _beneath(name: str) -> str:
    """A store's name as a path beneath a folder of this machine."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..", UNFINISHED) for part in parts):
        raise EngineError(f"the stored object {name!r} can't be a file here; rename it in the store")
    return "/".join(parts)
