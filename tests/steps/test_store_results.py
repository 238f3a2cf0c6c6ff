"""Storing results: all of it is there and proven, or the step is red and says what is missing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.learner import checkpoint, contract
from tests.steps import s3
from tests.steps.test_download import peak_memory
from tests.steps.volume import JOB_ID, ODD_NAMES, Job, tree, until

SEED = int(os.environ.get("FFDL_TEST_SEED", random.randrange(1 << 30)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    with s3.serve(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path / "pod")
    job.good("download")
    job.environment[contract.OUTCOME_ENV] = "Succeeded"
    return job


def on_s3(root: Path, server: s3.Server, name: str, endpoint: str = "") -> tuple[Job, Path]:
    """A job that stores in bucket `name`, and its folder there."""
    job = Job(root / "pod", results=contract.Store("s3", name, endpoint=endpoint or server.endpoint))
    job.credentials()
    job.environment[contract.OUTCOME_ENV] = "Succeeded"
    bucket = server.bucket(name)
    job.good("download")
    return job, bucket / JOB_ID


def result(job: Job, name: str, data: bytes, mode: int = 0o644) -> None:
    target = Path(job_result_dir(job)) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    target.chmod(mode)


def job_result_dir(job: Job) -> Path:
    bucket = json.loads((job.path(contract.CONFIG_DIR) / contract.JOB_FILE).read_text())["results"]["bucket"]
    return job.path(f"{contract.RESULTS_ROOT}/{bucket}/{JOB_ID}")


def record(folder: Path) -> dict[str, object]:
    values = json.loads((folder / contract.RECORD_FILE).read_text())
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize("kind", ["claim", "host", "s3"])
def test_the_layout(tmp_path: Path, server: s3.Server, kind: str) -> None:
    """FfDL's users find their files, code and logs where FfDL put them; a record lists them with size and digest."""
    if kind == "s3":
        job, stored = on_s3(tmp_path, server, "layout")
    else:
        job = Job(tmp_path / "pod", results=contract.Store(kind, "trained"))
        job.environment[contract.OUTCOME_ENV] = "Succeeded"
        job.path(contract.HOST_RESULTS_DIR).mkdir(parents=True)
        stored = job.path(contract.HOST_RESULTS_DIR if kind == "host" else f"{contract.STORE_DIR}/trained") / JOB_ID
        job.good("download")
    for name in ODD_NAMES:
        result(job, name, name.encode())
    result(job, "private", b"weights", 0o600)
    result(job, "empty", b"")
    (job_result_dir(job) / "no files in here").mkdir()
    (job.logs / "learner-1/training-log.txt").write_text("line\n")
    (job.logs / "learner-1/evaluation-metrics.txt").write_text("{}\n")
    job.checkpoint(10)
    (job.checkpoints / "own").write_bytes(b"o")
    job.good("store_results")
    there = tree(stored)
    code = (job.path(contract.CONFIG_DIR) / contract.CODE_FILE).read_bytes()
    found = json.loads(there.pop("status.json"))
    assert there.pop("_submitted_code/model.zip") == code
    assert there.pop("manifest.yml") == b"name: digits\n"
    assert there.pop("learner-1/training-log.txt") == b"line\n"
    assert there.pop("learner-1/evaluation-metrics.txt") == b"{}\n"
    assert checkpoint.verify(str(stored / "checkpoints/step-10"))
    assert there.pop("checkpoints/files/own") == b"o"
    for name in [name for name in there if name.startswith("checkpoints/")]:
        del there[name]
    assert there == {name: name.encode() for name in ODD_NAMES} | {"private": b"weights", "empty": b""}
    assert (stored / "private").stat().st_mode & 0o044 == 0o044
    assert (found["id"], found["name"], found["outcome"]) == (JOB_ID, "digits", "Succeeded")
    listed = {about["name"]: about for about in found["files"]}
    assert set(listed) == set(tree(stored)) - {"status.json"}
    for name, data in there.items():
        assert listed[name]["size"] == len(data)
        assert listed[name]["digest"] == f"md5:{hashlib.md5(data).hexdigest()}"


def test_again_stores_only_what_is_missing(tmp_path: Path, server: s3.Server) -> None:
    """Running it again repairs: what is gone or changed in the store is put back, the rest is left alone."""
    job, stored = on_s3(tmp_path, server, "repair")
    for i in range(5):
        result(job, f"f{i}", bytes([i]) * 1000)
    job.good("store_results")
    whole = tree(stored)
    times = {name: (stored / name).stat().st_mtime_ns for name in whole}
    (stored / "f1").unlink()
    (stored / "f2").write_bytes(b"?" * 1000)
    (stored / "f3").write_bytes(b"short")
    time.sleep(0.05)
    job.good("store_results")
    repaired = tree(stored)
    assert {name: repaired[name] for name in repaired if name != "status.json"} == {
        name: whole[name] for name in whole if name != "status.json"
    }
    changed = {name for name in whole if (stored / name).stat().st_mtime_ns != times[name]}
    assert changed == {"f1", "f2", "f3", "status.json"}


def test_links_and_pipes_are_left_out(job: Job, tmp_path: Path) -> None:
    """A link to a secret in RESULT_DIR is not followed, a pipe holds nothing up, and both are said once."""
    secret = tmp_path / "secret"
    secret.write_text("top secret")
    job.result("good", b"1")
    (job.result_dir / "link").symlink_to(secret)
    (job.result_dir / "folder").symlink_to(tmp_path)
    os.mkfifo(job.result_dir / "pipe")
    said = job.good("store_results")
    assert b"top secret" not in b"".join(tree(job.stored).values())
    assert said.count("/link: ") == said.count("/pipe: ") == said.count("/folder: ") == 1
    assert len(record(job.stored)["skipped"]) == 3  # type: ignore[arg-type]
    for found in job.result_dir.iterdir():
        found.unlink()
    job.result_dir.rmdir()
    job.result_dir.symlink_to(tmp_path)
    assert "a link or not a folder" in job.good("store_results")
    assert b"top secret" not in b"".join(tree(job.stored).values())


def test_names_that_are_no_text(job: Job) -> None:
    """A file name in another encoding, or with a line break, is no reason to lose the others, nor this one."""
    job.result(b"latin-\xe9\n", b"1")
    job.good("store_results")
    assert os.path.exists(os.fsencode(job.stored) + b"/latin-\xe9\n")


def test_no_results_wanted(job: Job) -> None:
    """`training_results: none` stores nothing and says so."""
    job.write_spec(results=None)
    assert "no results" in job.good("store_results")
    assert not job.stored.exists()


def test_a_store_that_is_full(job: Job) -> None:
    """A store that can't be written is a red step with what is missing and where it still is; nothing half is there."""
    job.result("model", bytes(5000))
    store = job.path(contract.STORE_DIR)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limit[1]))  # a disk that is full, also for root
    try:
        line = job.red("store_results", FFDL_RETRY_SECONDS="0.5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "model" in line
    assert "still on the job's volume" in line
    assert str(job.result_dir) in line
    assert line == job.failures["store-results"]
    assert not (job.stored / "model").exists()
    assert not (job.stored / "status.json").exists()
    assert not [found for found in store.rglob("*") if found.name.startswith(".ffdl")]
    job.good("store_results")
    assert (job.stored / "model").read_bytes() == bytes(5000)
    assert job.failures == {}


def test_a_store_that_is_a_read_only_folder(job: Job) -> None:
    """The same where the store's folder itself lets nothing in."""
    job.result("model", b"1")
    job.path(f"{contract.STORE_DIR}/dlaas-trained-models").write_text("a file where the bucket should be")
    line = job.red("store_results", FFDL_RETRY_SECONDS="0.5")
    assert "still on the job's volume" in line


def test_s3_that_refuses(tmp_path: Path, server: s3.Server) -> None:
    """A store that is down is waited for, then it is a red step, and the engine is told the reason once."""
    with s3.Proxy(server.port) as proxy:
        job, stored = on_s3(tmp_path, server, "down", proxy.endpoint)
        control = job.path(contract.CONTROL_DIR)
        control.mkdir(parents=True)
        (control / contract.CONTROL_WORKFLOW).write_text(json.dumps({"metadata": {"annotations": {}}}))
        result(job, "model", b"1")
        proxy.refuse = True
        line = job.red("store_results", FFDL_RETRY_SECONDS="0.5")
        assert "no connection" in line
        asked = [json.loads(found.read_text()) for found in (control / contract.CONTROL_REQUESTS).glob("*.json")]
        assert asked == [{"kind": "annotate", "annotations": {contract.ANNOTATION_REASON: line}}]
        known = {"metadata": {"annotations": {contract.ANNOTATION_REASON: "learner-1 ended with exit code 3"}}}
        (control / contract.CONTROL_WORKFLOW).write_text(json.dumps(known))
        job.red("store_results", FFDL_RETRY_SECONDS="0.5")
        assert len(list((control / contract.CONTROL_REQUESTS).glob("*.json"))) == 1
        seen = proxy.connections
        process = job.start("store_results")
        until(lambda: proxy.connections > seen + 2)
        proxy.refuse = False
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert (stored / "model").read_bytes() == b"1"


def test_s3_that_cuts_connections(tmp_path: Path, server: s3.Server) -> None:
    """Connections cut at random bytes make storing slow, not wrong."""
    print("seed", SEED)
    with s3.Proxy(server.port, SEED) as proxy:
        job, stored = on_s3(tmp_path, server, "cuts", proxy.endpoint)
        proxy.cut = (1_000, 300_000)
        wanted = {f"f{i}": random.Random(i).randbytes(20_000) for i in range(40)}
        for name, data in wanted.items():
            result(job, name, data)
        job.good("store_results")
        there = tree(stored)
        assert {name: there[name] for name in wanted} == wanted


def test_killed_at_random_moments(tmp_path: Path, server: s3.Server) -> None:
    """Killed at any moment, a record in the store means that all of it is there; run again it ends well."""
    print("seed", SEED)
    chance = random.Random(SEED)
    job, stored = on_s3(tmp_path, server, "kills")
    wanted = {f"d/f{i}": random.Random(i).randbytes(chance.choice([0, 10, 50_000])) for i in range(150)}
    wanted["big"] = random.Random(1).randbytes(20 << 20)
    for name, data in wanted.items():
        result(job, name, data)
    began = time.monotonic()
    job.good("store_results")
    took = time.monotonic() - began
    kills = 0
    for _ in range(8):
        shutil.rmtree(stored, ignore_errors=True)
        kills += job.killed("store_results", chance.uniform(0.1, 0.9) * took)
        if (stored / contract.RECORD_FILE).exists():
            assert wanted.items() <= tree(stored).items()
    assert kills
    job.good("store_results")
    assert wanted.items() <= tree(stored).items()


def test_sigterm_is_again_please(tmp_path: Path, server: s3.Server) -> None:
    """A drained node in the middle of storing: the next attempt goes on."""
    with s3.Proxy(server.port) as proxy:
        job, stored = on_s3(tmp_path, server, "term", proxy.endpoint)
        result(job, "model", bytes(20 << 20))
        proxy.freeze = True
        seen = proxy.connections
        process = job.start("store_results")
        until(lambda: proxy.connections > seen)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == contract.EXIT_AGAIN
        proxy.freeze = False
        job.good("store_results")
        assert (stored / "model").stat().st_size == 20 << 20


def write_status(job: Job, phase: str) -> None:
    control = job.path(contract.CONTROL_DIR)
    control.mkdir(parents=True, exist_ok=True)
    nodes = {
        "a": {"type": "Pod", "templateName": "learner", "displayName": "learner(0:0)(0)", "phase": phase},
        "b": {"type": "Pod", "templateName": "store-results", "phase": "Running"},
        "c": {"type": "Retry", "templateName": "learner", "phase": "Running"},
    }
    contract.atomic_write(str(control / contract.CONTROL_STATUS), json.dumps({"nodes": nodes}).encode())


def test_the_exit_step_waits_for_those_who_still_write(job: Job) -> None:
    """Argo starts the exit step while learners still write: what they write last is stored too."""
    write_status(job, "Running")
    process = job.start("store_results", FFDL_OUTCOME="Failed", FFDL_WAIT_SECONDS="30")
    try:
        with pytest.raises(Exception, match="timed out"):
            process.wait(0.7)
        job.result("last", b"words")
        (job.path(contract.CONTROL_DIR) / contract.CONTROL_WORKFLOW).write_text(
            json.dumps({"metadata": {"annotations": {contract.ANNOTATION_REASON: "learner-1 ended with exit code 3"}}})
        )
        write_status(job, "Failed")
        out, errors = process.communicate(timeout=20)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, out + errors
    assert (job.stored / "last").read_bytes() == b"words"
    found = record(job.stored)
    assert (found["outcome"], found["reason"]) == ("Failed", "learner-1 ended with exit code 3")


def test_the_exit_step_waits_no_longer_than_agreed(job: Job) -> None:
    """A pod that never ends does not keep the others' results from being stored."""
    write_status(job, "Running")
    assert "still running" in job.good("store_results", FFDL_OUTCOME="Failed", FFDL_WAIT_SECONDS="0.5")
    assert (job.stored / "status.json").exists()


@pytest.mark.parametrize("kind", ["claim", "s3"])
def test_many_small_files(tmp_path: Path, server: s3.Server, kind: str) -> None:
    """5,000 small files are stored in seconds, not minutes."""
    if kind == "s3":
        job, stored = on_s3(tmp_path, server, "many")
    else:
        job = Job(tmp_path / "pod")
        job.good("download")
        stored = job.stored
    job.environment[contract.OUTCOME_ENV] = "Succeeded"
    for i in range(5000):
        result(job, f"{i % 50}/f{i}", b"%d" % i)
    began = time.monotonic()
    job.good("store_results")
    took = time.monotonic() - began
    print(f"5,000 files in {took:.1f} s")
    assert len(record(stored)["files"]) == 5002  # type: ignore[arg-type]
    assert took < 60
    began = time.monotonic()
    job.good("store_results")
    assert time.monotonic() - began < took + 5


@pytest.mark.parametrize("kind", ["claim", "s3"])
def test_memory_is_bounded(tmp_path: Path, server: s3.Server, kind: str) -> None:
    """Big results need no big pod: 200 MB in one file and 20 files of 7 MB stay within 64 MiB."""
    if kind == "s3":
        job, stored = on_s3(tmp_path, server, "memory")
    else:
        job = Job(tmp_path / "pod")
        job.environment[contract.OUTCOME_ENV] = "Succeeded"
        job.good("download")
        stored = job.stored
    result(job, "big", b"")
    os.truncate(job_result_dir(job) / "big", 200 << 20)
    for i in range(20):
        result(job, f"f{i}", bytes(7 << 20))
    process = job.start("store_results")
    peak = peak_memory(process.pid)
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, out + errors
    print("peak", peak() >> 20, "MiB")
    assert 0 < peak() <= 64 << 20
    assert (stored / "big").stat().st_size == 200 << 20


def test_files_that_come_and_go_meanwhile(job: Job) -> None:
    """A file deleted under our hands is no failure; what is there at the end is stored."""
    for i in range(200):
        job.result(f"f{i}", b"x" * 1000)
    process = job.start("store_results")
    for i in range(0, 200, 2):
        (job.result_dir / f"f{i}").unlink()
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert all((job.stored / f"f{i}").exists() for i in range(1, 200, 2))
