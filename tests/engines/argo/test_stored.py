"""What a job has stored, and what it has said, on a real cluster: by way of a pod, over connections that break."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.engines.argo import objects, records
from ffdl.engines.argo.engine import ArgoEngine
from ffdl.engines.base import CHECKPOINT, DEFINITION, RESULTS, TRAINEDMODEL, EngineError, NoSuchJob, Refused
from ffdl.engines.client import Client, new_job_id
from ffdl.engines.nodes import unix_time
from ffdl.learner import contract
from ffdl.workflows.job import TrainingJob
from tests.behaviours.tenant import Tenant
from tests.engines.argo.cutting import way
from tests.engines.argo.plain import compiled, engine, until

SIZE = 50_000_000
MANIFEST = f"""
name: stores
cpus: 0.1
memory: 128MB
halt_grace: 5s
framework:
  name: custom
  version: localhost/debian:bookworm
  command: |
    stat -c 'code has %s bytes' large.bin
    if [ ! -e $CHECKPOINT_DIR/second ]; then
      touch $CHECKPOINT_DIR/second
      seq -f 'first %g' 500
      exec sleep 600
    fi
    seq -f 'second %g' 500
    head -c {SIZE} /dev/urandom > $RESULT_DIR/large.out
    mkdir -p "$RESULT_DIR/a folder" && echo hi > "$RESULT_DIR/a folder/ž 🐎"
    : > $RESULT_DIR/empty
    sha256sum < $RESULT_DIR/large.out
"""
PATIENCE = 150.0
ARGO_FORGETS = 12.0  # seconds; Argo makes a younger pod that has gone again under the same name
Told = tuple[str, list[str], list[str]]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than a ConfigMap holds."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "large.bin").write_bytes(os.urandom(2_000_000))
    return folder


@pytest.fixture(scope="module")
def told(team: Tenant, code: Path) -> Iterator[Told]:
    """A finished job whose first pod was deleted by force; what a follower was told, and all that there was to tell."""
    with finished(team, code, ARGO_FORGETS) as made:
        yield made


@contextlib.contextmanager
def finished(team: Tenant, code: Path, age: float) -> Iterator[Told]:
    """The pod is deleted when it is `age` seconds old, or a bit older."""
    argo = engine(team)
    job = Client(argo).submit(TrainingJob.from_manifest(MANIFEST), code).id
    heard: list[str] = []
    follower = threading.Thread(target=lambda: heard.extend(line.text for line in argo.logs(job, follow=True)))
    follower.start()
    deadline = time.monotonic() + PATIENCE
    while "first 500" not in heard:
        assert time.monotonic() < deadline, (argo.status(job), heard)
        time.sleep(0.2)
    (pod,) = team.api.list("pods", f"{contract.LABEL_JOB}={job},{contract.LABEL_ROLE}=learner")
    while time.time() - (unix_time(pod["metadata"]["creationTimestamp"]) or 0.0) < age:
        time.sleep(0.2)
    team.api.delete("pods", pod["metadata"]["name"], grace=0)
    until(argo, job, "COMPLETED")
    follower.join(30)
    assert not follower.is_alive()
    begin = "code has 2000000 bytes"
    wanted = [begin, *(f"first {n}" for n in range(1, 501)), begin, *(f"second {n}" for n in range(1, 501))]
    yield job, heard, wanted
    with contextlib.suppress(NoSuchJob):
        argo.delete(job, results=True)
    for kind in ("workflows", "pods", "configmaps", "persistentvolumeclaims"):
        assert team.api.list(kind, f"{contract.LABEL_JOB}={job}") == []


def own(lines: list[str]) -> list[str]:
    """Without those of the agent's."""
    return [line for line in lines if not line.startswith("ffdl: ")]


def test_the_lines_of_a_deleted_pod_are_told_with_the_others(team: Tenant, told: Told) -> None:
    """Why the first attempt did what it did is what one wants to know after the second."""
    job, heard, wanted = told
    assert own(heard)[:-1] == wanted
    lines = own([line.text for line in engine(team).logs(job)])
    assert lines[:-1] == wanted
    assert own([line.text for line in engine(team).logs(job, tail=2)]) == lines[-2:]
    with pytest.raises(Refused, match=r"the pod of attempt 1 is gone; .* leave --attempt out"):
        list(engine(team).logs(job, attempt=1))
    assert own([line.text for line in engine(team).logs(job, attempt=2)]) == lines[501:]


def test_the_lines_of_a_pod_that_argo_made_again_are_told(team: Tenant, code: Path) -> None:
    """A pod that is deleted in its first seconds is made again under its name, as if there had been no other."""
    with finished(team, code, 0.0) as (job, heard, wanted):
        assert own(heard)[:-1] == wanted
        assert own([line.text for line in engine(team).logs(job)])[:-1] == wanted


def test_results_arrive_whole_over_connections_that_break(team: Tenant, told: Told, tmp_path: Path) -> None:
    """A result that is large, or a way that is bad, must cost time and nothing else."""
    job, heard, _ = told
    with way(team.kubeconfig, tmp_path) as (path, kubeconfig):
        argo = ArgoEngine(team.namespace, kubeconfig=str(kubeconfig))
        seen: list[tuple[int, int]] = []

        def progress(done: int, total: int) -> None:
            seen.append((done, total))
            if done > SIZE * 0.8:
                path.most = None

        argo.on_progress = progress
        path.most = 20_000_000
        place = argo.download(job, RESULTS, tmp_path)
        assert path.cuts >= 2
    assert place == tmp_path / f"{job}-results"
    assert hashlib.sha256((place / "large.out").read_bytes()).hexdigest() == heard[-1].split()[0]
    assert (place / "a folder" / "ž 🐎").read_text() == "hi\n"
    assert (place / "empty").read_bytes() == b""
    assert seen[-1][0] == seen[-1][1] > SIZE
    names = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    kept = {name for name in names if name.startswith("checkpoints/")}
    assert kept
    assert names - kept == {
        "large.out", "a folder/ž 🐎", "empty", "status.json", "_submitted_code/model.zip",
        "learner-1/training-log.txt", "learner-1/evaluation-metrics.txt",
    }  # fmt: skip


def test_a_way_that_stays_bad_is_one_line(team: Tenant, told: Told, tmp_path: Path) -> None:
    """And no pod of this is left."""
    job, _, _ = told
    with way(team.kubeconfig, tmp_path) as (path, kubeconfig):
        path.most = 1_000_000
        with pytest.raises(EngineError, match="the connection to the pod broke"):
            ArgoEngine(team.namespace, kubeconfig=str(kubeconfig)).download(job, RESULTS, tmp_path)
    carriers = team.api.list("pods", f"{contract.LABEL_ROLE}=carrier")
    assert [pod for pod in carriers if "deletionTimestamp" not in pod["metadata"]] == []


def test_parts_of_what_is_stored(team: Tenant, told: Told, tmp_path: Path) -> None:
    """The model without its logs; the code as submitted, though it was too large for the cluster's own objects."""
    job, _, _ = told
    argo = engine(team)
    place = argo.download(job, TRAINEDMODEL, tmp_path)
    assert sorted(file.name for file in place.iterdir()) == ["a folder", "empty", "large.out"]
    zipped = argo.download(job, DEFINITION, tmp_path)
    assert zipped == tmp_path / f"{job}-definition.zip"
    assert [entry.file_size for entry in zipfile.ZipFile(zipped).infolist()] == [2_000_000]
    assert any(file.is_file() for file in argo.download(job, CHECKPOINT, tmp_path).rglob("*"))
    with pytest.raises(Refused, match="nothing called dreams to download"):
        argo.download(job, "dreams", tmp_path)


def test_large_code_runs_again(team: Tenant, told: Told) -> None:
    """`ffdl resubmit` of a job whose code came by way of the store."""
    argo, again = engine(team), new_job_id()
    argo.resubmit(told[0], again)
    assert "code has 2000000 bytes" in own([next(argo.logs(again, follow=True)).text])
    argo.delete(again, results=True)


def test_a_job_whose_workflow_was_deleted_while_it_ran_has_failed(team: Tenant) -> None:
    """By hand, in Argo's UI: its results tell that it did not come to an end."""
    argo, job = engine(team), new_job_id()
    argo.submit(compiled("sleep 600"), job)
    until(argo, job, "PROCESSING")
    team.api.delete("workflows", job)
    assert (argo.status(job).state, argo.status(job).reason) == ("FAILED", records.CUT_OFF)
    argo.delete(job)


def test_a_job_whose_workflow_is_gone_is_known_by_its_record(team: Tenant, told: Told, tmp_path: Path) -> None:
    """Argo removes Workflows after their ttl; people ask for results for longer."""
    job, _, wanted = told
    argo = engine(team)
    before = argo.status(job)
    team.api.delete("workflows", job)
    deadline = time.monotonic() + 60
    while team.api.list("pods", f"{contract.LABEL_JOB}={job}"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert argo.status(job) == before
    assert job in argo.ids()
    assert [status for status in argo.list() if status.id == job] == [before]
    assert [status.state for status in argo.watch(job)] == ["COMPLETED"]
    assert own([line.text for line in argo.logs(job, follow=True)])[:-1] == wanted
    assert [line.text for line in argo.logs(job, tail=1)]
    assert list(argo.metrics(job)) == []
    team.api.patch("configmaps", f"{job}-record", {"data": {objects.END_KEY: None}})  # nobody looked before it was gone
    assert [status.state for status in argo.list() if status.id == job] == ["FAILED"]
    stored = argo.status(job)
    assert (stored.state, stored.name, stored.reason) == ("COMPLETED", before.name, "")
    assert stored.finished is not None
    assert before.finished is not None
    assert abs(stored.finished - before.finished) < 30
    assert [status for status in argo.list() if status.id == job] == [stored]
    assert (argo.download(job, TRAINEDMODEL, tmp_path) / "large.out").stat().st_size == SIZE
    assert argo.download(job, DEFINITION, tmp_path).exists()
    with pytest.raises(Refused, match=f"the Workflow of {job} is gone"):
        argo.resubmit(job, new_job_id())
    claim = team.api.get("persistentvolumeclaims", contract.RESULTS_CLAIM)["spec"]["volumeName"]
    volume = json.loads(team.api.call("GET", f"api/v1/persistentvolumes/{claim}"))["spec"]
    store = Path((volume.get("hostPath") or volume["local"])["path"], contract.DEFAULT_RESULTS_BUCKET)
    assert [file for file in (store / job).rglob("*") if file.is_file()] != []
    argo.delete(job, results=True)
    assert [file for file in (store / job).rglob("*") if file.is_file()] == []
    with pytest.raises(NoSuchJob):
        argo.status(job)
