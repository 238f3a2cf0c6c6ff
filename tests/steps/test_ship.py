"""Shipping while training goes on: what is in the store is whole at every moment, and nothing goes there twice."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.learner import checkpoint, contract
from tests.steps import s3
from tests.steps.volume import JOB_ID, Job, tree

SEED = int(os.environ.get("FFDL_TEST_SEED", random.randrange(1 << 30)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    with s3.serve(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path / "pod")
    job.good("download")
    return job


def steps(folder: Path) -> list[str]:
    """The steps that have a marker."""
    return sorted(found.parent.name for found in folder.glob(f"**/{checkpoint.COMMITTED}"))


def test_only_committed_checkpoints_are_shipped(job: Job) -> None:
    """What a crash left of a checkpoint is not taken for one, nor for a script's own files."""
    job.checkpoint(10)
    torn = job.checkpoint(20)
    os.rename(f"{torn.path}/{checkpoint.COMMITTED}", f"{torn.path}/{checkpoint.UNFINISHED}")
    job.good("ship", "--checkpoints")
    assert steps(job.stored) == ["step-10"]
    assert {name.split("/")[1] for name in tree(job.stored)} == {"step-10"}
    assert checkpoint.verify(str(job.stored / "checkpoints/step-10"))


def test_a_damaged_checkpoint_is_not_shipped(job: Job) -> None:
    """A file that rotted on the volume does not replace a good copy in the store."""
    job.checkpoint(10)
    job.good("ship", "--checkpoints")
    bad = job.checkpoint(20)
    name = Path(bad.path) / "arrays.bin"
    name.write_bytes(bytes([name.read_bytes()[0] ^ 1]) + name.read_bytes()[1:])
    assert "damaged" in job.good("ship", "--checkpoints")
    assert steps(job.stored) == ["step-10"]


def test_the_last_few_stay(job: Job) -> None:
    """`checkpoint.keep` holds for the store too, and never leaves it without one."""
    job.write_spec(checkpoint_keep=2)
    for step in (1, 2, 3):
        job.checkpoint(step)
        job.good("ship", "--checkpoints")
    assert steps(job.stored) == ["step-2", "step-3"]
    assert sorted(found.name for found in (job.stored / "checkpoints").iterdir()) == ["step-2", "step-3"]
    shutil.rmtree(job.checkpoints / "step-3")
    shutil.rmtree(job.checkpoints / "step-2")
    job.good("ship", "--checkpoints")
    assert steps(job.stored) == ["step-2", "step-3"]


def test_a_step_written_again_replaces_the_old_one(job: Job) -> None:
    """A job that went back and reached a step a second time ships what it has now."""
    job.checkpoint(10, fill=1)
    job.good("ship", "--checkpoints")
    job.checkpoint(10, fill=2)
    job.good("ship", "--checkpoints")
    place = job.stored / "checkpoints/step-10"
    assert checkpoint.verify(str(place))
    assert tree(place) == tree(job.checkpoints / "step-10")


def test_nothing_is_shipped_twice(tmp_path: Path, server: s3.Server) -> None:
    """Shipping every minute costs a look, not the bytes; also after the memory of it was lost."""
    with s3.Proxy(server.port) as proxy:
        job = Job(tmp_path / "pod", results=contract.Store("s3", "twice", endpoint=proxy.endpoint))
        job.credentials()
        bucket = server.bucket("twice")
        job.good("download")
        job.checkpoint(10, size=12 << 20)
        (job.logs / "learner-1").mkdir(exist_ok=True)
        (job.logs / "learner-1/training-log.txt").write_text("line\n")
        (job.checkpoints / "own").write_bytes(bytes(9 << 20))
        job.good("ship", "--final")
        times = {name: (bucket / name).stat().st_mtime_ns for name in tree(bucket)}
        assert len(times) == 3 + 1 + 2
        job.good("ship", "--final")
        (job.path(contract.JOURNAL_DIR) / "shipped.json").write_text("{ not JSON")
        job.good("ship", "--final")
        assert {name: (bucket / name).stat().st_mtime_ns for name in tree(bucket)} == times


def test_logs_and_metrics(job: Job) -> None:
    """Each learner's log and metrics lie where FfDL put them, and grow."""
    for learner in ("learner-1", "learner-2"):
        (job.logs / learner).mkdir(exist_ok=True)
        (job.logs / learner / contract.TRAINING_LOG).write_text(f"I am {learner}\n")
    (job.logs / "learner-1" / contract.METRICS_FILE).write_text("{}\n")
    job.good("ship", "--logs")
    with open(job.logs / "learner-1" / contract.TRAINING_LOG, "a") as log:
        log.write("more\n")
    job.good("ship", "--logs")
    assert tree(job.stored) == {
        "learner-1/training-log.txt": b"I am learner-1\nmore\n",
        "learner-1/evaluation-metrics.txt": b"{}\n",
        "learner-2/training-log.txt": b"I am learner-2\n",
    }


def test_a_log_that_grows_meanwhile_is_shipped(job: Job) -> None:
    """A script that prints without a pause does not keep its log from the store."""
    log = job.logs / "learner-1/training-log.txt"
    log.parent.mkdir(exist_ok=True)
    ended = threading.Event()

    def write() -> None:
        with open(log, "ab", buffering=0) as stream:
            while not ended.is_set():
                stream.write(b"line\n" * 100)
                ended.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            job.good("ship", "--logs")
    finally:
        ended.set()
        writer.join()
    job.good("ship", "--logs")
    assert (job.stored / "learner-1/training-log.txt").read_bytes() == log.read_bytes()


def test_links_to_secrets_are_not_followed(job: Job, tmp_path: Path) -> None:
    """A script can't have the helper ship the credentials it holds, neither through a file nor through a folder."""
    secret = tmp_path / "credentials.json"
    secret.write_text("top secret")
    (job.checkpoints / "link").symlink_to(secret)
    (job.checkpoints / "folder").symlink_to(tmp_path)
    (job.checkpoints / "learner-1").symlink_to(tmp_path)
    os.mkfifo(job.checkpoints / "pipe")
    (job.checkpoints / "mine").write_text("weights")
    good = job.checkpoint(10)
    (Path(good.path) / "arrays.bin").unlink()
    (Path(good.path) / "arrays.bin").symlink_to(secret)
    said = job.good("ship", "--final")
    assert b"top secret" not in b"".join(tree(job.stored).values())
    assert [line.count("not stored") for line in said.splitlines() if "link" in line and "/link" in line] == [1]
    assert (job.stored / "checkpoints/files/mine").read_text() == "weights"
    shutil.rmtree(job.checkpoints)
    shutil.rmtree(job.logs)
    job.checkpoints.symlink_to(tmp_path)
    job.logs.symlink_to(tmp_path)
    assert "a link or not a folder" in job.good("ship", "--final")
    assert b"top secret" not in b"".join(tree(job.stored).values())


def manifest(job: Job) -> dict[str, bytes]:
    """What a restore of a script's own files would find."""
    folder = job.stored / "checkpoints"
    listed = json.loads((folder / "files.json").read_text())["files"]
    return {name: (folder / about["key"]).read_bytes() for name, about in listed.items()}


def test_a_scripts_own_snapshot_is_whole_at_every_moment(job: Job) -> None:
    """Killed anywhere in shipping the next snapshot, the store has one of the two whole, never a mixture."""
    print("seed", SEED)
    chance = random.Random(SEED)
    sizes = [chance.randrange(1, 3 << 20) for _ in range(6)]

    def write(version: int) -> dict[str, bytes]:
        files = {f"part-{i}": bytes([version]) * size for i, size in enumerate(sizes)} | {"same": b"same"}
        for name, data in files.items():
            (job.checkpoints / name).write_bytes(data)
            os.utime(job.checkpoints / name, (version, version))
        return files

    before = write(1)
    job.good("ship", "--final")
    assert manifest(job) == before
    for version in range(2, 9):
        after = write(version)
        job.killed("ship", chance.uniform(0.1, 0.5), "--final")
        assert manifest(job) in (before, after)
        job.good("ship", "--final")
        assert manifest(job) == after
        before = after
    assert len(tree(job.stored)) == len(before) + 1


def test_a_snapshot_is_taken_only_in_a_quiet_moment(job: Job) -> None:
    """While the script writes its files, no mixture of old and new is shipped."""
    ended = threading.Event()

    def write() -> None:
        count = 0
        while not ended.is_set():
            count += 1
            (job.checkpoints / "a").write_text("x" * (count % 50))
            ended.wait(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        job.good("ship", "--checkpoints")
    finally:
        ended.set()
        writer.join()
    assert not (job.stored / "checkpoints").exists()
    job.good("ship", "--checkpoints")
    assert manifest(job) == {"a": (job.checkpoints / "a").read_bytes()}


def test_a_store_that_refuses_is_said_and_retried_by_the_next(tmp_path: Path, server: s3.Server) -> None:
    """With the store down shipping ends with a reason, soon; the next run ships all of it."""
    print("seed", SEED)
    with s3.Proxy(server.port, SEED) as proxy:
        job = Job(tmp_path / "pod", results=contract.Store("s3", "refusing", endpoint=proxy.endpoint))
        job.credentials()
        bucket = server.bucket("refusing")
        job.good("download")
        job.checkpoint(10, size=3 << 20)
        proxy.refuse = True
        assert "no connection" in job.red("ship", "--checkpoints", FFDL_RETRY_SECONDS="0.5")
        proxy.refuse = False
        proxy.cut = (200_000, 9_000_000)
        job.good("ship", "--checkpoints")
        assert checkpoint.verify(str(bucket / JOB_ID / "checkpoints/step-10"))


def test_killed_while_shipping_to_s3(tmp_path: Path, server: s3.Server) -> None:
    """Whenever shipping is killed, every marker in the store has all of its files."""
    print("seed", SEED)
    chance = random.Random(SEED)
    job = Job(tmp_path / "pod", results=contract.Store("s3", "kills", endpoint=server.endpoint), checkpoint_keep=2)
    job.credentials()
    bucket = server.bucket("kills")
    job.good("download")
    for step in range(1, 8):
        job.checkpoint(step, size=4 << 20)
        job.killed("ship", chance.uniform(0.15, 0.6), "--checkpoints")
        for marker in bucket.glob(f"**/{checkpoint.COMMITTED}"):
            assert checkpoint.verify(str(marker.parent))
    job.good("ship", "--checkpoints")
    assert steps(bucket) == ["step-6", "step-7"]


def test_usage(job: Job) -> None:
    """A call without a word about what to ship is an error, not nothing."""
    assert job.run("ship").returncode == 2
    job.write_spec(results=None)
    assert "no results" in job.good("ship", "--final")
