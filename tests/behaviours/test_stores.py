"""Data stores: training data comes in, results go out, and what a store does not do is said in one line."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.conftest import SHORT
from tests.behaviours.user import User
from tests.steps import s3 as servers

Setting = Callable[[str, str], None]
NAMES = [
    "a b/c d.txt", "ünïcödé/日本語.bin", "-rf", "--help/-x", "x" * 200, "p+q=r&s", "50%", "50%25", "a#b",
    "deep/er/and/deeper",
]  # fmt: skip
COPY = 'cp -r "$DATA_DIR" "$RESULT_DIR/copy" && echo "$DATA_DIR" > "$RESULT_DIR/where"'


def tree(folder: Path) -> dict[str, str]:
    """The files of a folder by name, each as its digest."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def fill(folder: Path, names: list[str], size: int, dice: random.Random) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(dice.randbytes(size))


def store(endpoint: str, data: str, results: str, kind: str = "s3_datastore", **connection: str) -> dict[str, Any]:
    """The manifest's key for two buckets."""
    login = {"auth_url": endpoint, "user_name": servers.KEY, "password": servers.SECRET}
    return {
        "data_stores": [
            {
                "id": "the-store",
                "type": kind,
                "training_data": {"container": data},
                "training_results": {"container": results},
                "connection": {**login, **connection},
            }
        ]
    }


def host_store(folder: Path, results: str | None = None) -> dict[str, Any]:
    """The manifest's key for folders of this machine: `folder`/data, and `folder`/`results`."""
    described: dict[str, Any] = {
        "id": "here",
        "type": "mount_volume",
        "training_data": {"container": "data"},
        "connection": {"type": "host_mount", "path": str(folder)},
    }
    return {"data_stores": [described | ({"training_results": {"container": results}} if results else {})]}


@pytest.fixture
def buckets(s3: servers.Server) -> tuple[Path, Path]:
    """A bucket with data and one for results, new ones."""
    name = uuid.uuid4().hex[:12]
    return s3.bucket(f"data-{name}"), s3.bucket(f"results-{name}")


def failed(user: User, job: str) -> str:
    status = user.until_over(job)
    assert status.state == "FAILED", user.story()
    assert "\n" not in status.reason
    assert status.reason
    user.ffdl("wait", job, code=1)
    return status.reason


# --- buckets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "where"), [("mount_cos", "/mnt/data"), ("s3_datastore", "/job")])
def test_from_bucket_to_bucket(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], kind: str, where: str, dice: random.Random
) -> None:
    """A script finds a bucket's files in DATA_DIR under their names; what it leaves is in the other bucket."""
    data, results = buckets
    fill(data, NAMES, 1000, dice)
    fill(data, ["big.bin"], 20 << 20, dice)
    job = user.train(user.command(COPY, **store(s3.endpoint, data.name, results.name, kind)))
    assert user.until_over(job).state == "COMPLETED", user.story()
    stored = results / job
    assert tree(stored / "copy") == tree(data)
    assert (stored / "where").read_text() == f"{where}/{data.name}\n"
    assert {"status.json", "learner-1/training-log.txt", "_submitted_code/model.zip"} <= set(tree(stored))
    user.ffdl("download", job, "--trainedmodel", "-d", "here")
    assert tree(user.folder / "here" / f"{job}-trainedmodel" / "copy") == tree(data)
    user.ffdl("delete", job, "--results", "-y")
    assert not tree(results), "deleted with its results"


def test_credentials_stay_where_they_belong(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], dice: random.Random
) -> None:
    """The learner's code is not trusted with the store, and a listing pasted into a chat gives nothing away."""
    data, results = buckets
    fill(data, ["x"], 10, dice)
    gate = user.folder / "gate"
    look = (
        "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
        "find / -xdev -maxdepth 3 -path '/ffdl*' -o -maxdepth 1 -path '/job*'; "
        "cat /ffdl/*/* /job/.ffdl/* 2>/dev/null; ls -d /ffdl/*; touch /job/looked; "
        f"until [ -e {gate} ]; do sleep 0.05; done"
    )
    folder = user.command(look, **store(s3.endpoint, data.name, results.name))
    (user.folder / "code").mkdir()
    job = user.train(folder, str(user.folder / "code"))
    user.wait_for(lambda: bool(list(user.home.glob("jobs/*/claims/job/job/looked"))), "the script's look")
    everything = "".join(user.ffdl(*arguments).stdout for arguments in (["list"], ["list", "-o", "json"]))
    for pid in user.processes():
        for name in ("environ", "cmdline"):
            everything += Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    gate.touch()
    assert user.until_over(job).state == "COMPLETED", user.story()
    verbs = [["show"], ["show", "-o", "json"], ["show", "--workflow"], ["logs"], ["events"], ["metrics"]]
    verbs += [["logs", "--step", step] for step in ("download", "checkpoint", "store-results")]
    for verb in verbs:
        done = user.ffdl(*verb, job)
        everything += done.stdout + done.stderr
    assert "/ffdl/config" in everything, "the script has looked around"
    assert servers.SECRET not in everything
    folder_of_job = user.home / "jobs" / job
    holding = [
        str(path.relative_to(folder_of_job))
        for path in folder_of_job.rglob("*")
        if path.is_file() and servers.SECRET.encode() in path.read_bytes()
    ]
    assert holding == [f"objects/secrets/{job}-store/credentials.json"]
    assert (folder_of_job / holding[0]).stat().st_mode & 0o077 == 0
    assert servers.SECRET.encode() not in b"".join(path.read_bytes() for path in results.rglob("*") if path.is_file())


def test_a_password_by_its_name(user: User, s3: servers.Server, buckets: tuple[Path, Path]) -> None:
    """`${NAME}` keeps passwords out of files; a name that is not set is said at submit."""
    data, results = buckets
    (data / "x").write_text("kept")
    folder = user.command(COPY, **store(s3.endpoint, data.name, results.name, password="${STORE_PASSWORD}"))
    said = user.ffdl("train", str(folder / "manifest.yml"), code=2).stderr
    assert "STORE_PASSWORD" in said
    user.env["STORE_PASSWORD"] = servers.SECRET
    job = user.train(folder)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (results / job / "copy" / "x").read_text() == "kept"


def test_credentials_of_the_environment(user: User, s3: servers.Server, buckets: tuple[Path, Path]) -> None:
    """Where a manifest names no credentials, those of the submitter's environment are used; the learner sees none."""
    data, results = buckets
    (data / "x").write_text("kept")
    changes = store(s3.endpoint, data.name, results.name)
    del changes["data_stores"][0]["connection"]["user_name"], changes["data_stores"][0]["connection"]["password"]
    user.env |= {"AWS_ACCESS_KEY_ID": servers.KEY, "AWS_SECRET_ACCESS_KEY": servers.SECRET}
    user.env["FFDL_RETRY_SECONDS"] = "1"
    job = user.train(user.command(f"{COPY}; env", **changes))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (results / job / "copy" / "x").read_text() == "kept"
    assert "AWS_" not in user.ffdl("logs", job).stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("password", "authentication"), ("bucket", "bucket 'no-such-bucket'"), ("port", "connection")],
)
def test_a_store_that_can_not_be_read(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], setting: Setting, wrong: str, said: str
) -> None:
    """A typing error in a manifest is a red job within seconds that says what is wrong with which bucket."""
    setting("FFDL_RETRY_SECONDS", "1")
    data, results = buckets
    changes = {
        "password": store(s3.endpoint, data.name, results.name, password="not-it"),
        "bucket": store(s3.endpoint, "no-such-bucket", results.name),
        "port": store("http://127.0.0.1:9", data.name, results.name),
    }[wrong]
    job = user.train(user.command("true", **changes))
    reason = failed(user, job)
    bucket = "no-such-bucket" if wrong == "bucket" else data.name
    assert bucket in reason, reason
    assert said in reason, reason
    assert "download" in reason, reason
    assert user.engine.status(job).error_code == "S302"
    assert servers.SECRET not in reason
    assert reason in user.ffdl("show", job).stdout


def test_a_store_that_cuts_connections(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], dice: random.Random
) -> None:
    """A bad line costs time, never a byte."""
    data, results = buckets
    fill(data, NAMES, 200_000, dice)
    with servers.Proxy(s3.port, dice.randrange(2**32)) as proxy:
        proxy.cut = (50_000, 900_000)
        job = user.train(user.command(COPY, **store(proxy.endpoint, data.name, results.name)))
        assert user.until_over(job).state == "COMPLETED", user.story()
        assert proxy.connections > 5
    assert tree(results / job / "copy") == tree(data)


def gated(user: User, script: str, **changes: Any) -> tuple[str, Path]:
    """A job that waits for a file once it has written something, and that file."""
    gate = user.folder / "gate"
    job = user.train(user.command(f'{script}; touch /job/there; until [ -e "{gate}" ]; do sleep 0.05; done', **changes))
    user.wait_for(lambda: bool(list(user.home.glob("jobs/*/claims/job/job/there"))), "the script's files")
    return job, gate


def test_a_store_that_refuses_results_for_a_while(user: User, s3: servers.Server, buckets: tuple[Path, Path]) -> None:
    """A store that restarts at the wrong moment must not cost a night's training."""
    data, results = buckets
    with servers.Proxy(s3.port) as proxy:
        job, gate = gated(user, 'echo kept > "$RESULT_DIR/kept"', **store(proxy.endpoint, data.name, results.name))
        proxy.refuse = True
        before = proxy.connections
        proxy.cut_all()
        gate.touch()
        user.until(job, lambda status: status.state == "STORING")
        user.wait_for(lambda: proxy.connections > before + 3, "another try")
        proxy.refuse = False
        assert user.until_over(job).state == "COMPLETED", user.story()
    assert (results / job / "kept").read_text() == "kept\n"


def test_a_store_that_refuses_results_for_good(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], setting: Setting
) -> None:
    """Trained and not stored is red, and says what is missing and where it still is: never a silent loss."""
    setting("FFDL_RETRY_SECONDS", "2")
    data, results = buckets
    with servers.Proxy(s3.port) as proxy:
        job, gate = gated(user, 'echo kept > "$RESULT_DIR/kept"', **store(proxy.endpoint, data.name, results.name))
        proxy.refuse = True
        before = proxy.connections
        proxy.cut_all()
        gate.touch()
        reason = failed(user, job)
        assert proxy.connections > before + 3, "it was tried again"
    assert results.name in reason, reason
    assert "missing" in reason, reason
    assert "volume" in reason, reason
    assert user.engine.status(job).error_code == "S303"
    kept = list((user.home / "jobs" / job).rglob("kept"))
    assert [path.read_text() for path in kept] == ["kept\n"], "the volume is kept when results could not be stored"


def test_halting_while_the_store_is_down(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], setting: Setting
) -> None:
    """The machine is wanted now: a store that is away delays a halt, and neither stops it nor costs a step."""
    setting("FFDL_RETRY_SECONDS", "3")
    data, results = buckets
    with servers.Proxy(s3.port) as proxy:
        job = user.train(user.job(env=SHORT, **store(proxy.endpoint, data.name, results.name)))
        user.until_step(job, 30)
        proxy.refuse = True
        proxy.cut_all()
        user.ffdl("halt", job)
        assert user.ffdl("status", job).stdout.strip() == "HALTED"
        assert not user.processes()
        halted_at = user.step(job)
        proxy.refuse = False
        user.ffdl("resume", job)
        shipped = f"checkpoints/step-{halted_at}/COMMITTED"
        user.wait_for(lambda: shipped in tree(results / job), f"{shipped} in the store")
        assert user.until_over(job).state == "COMPLETED", user.story()
    again = [line for line in user.ffdl("logs", job).stdout.splitlines() if "restored at" in line]
    assert again[-1].endswith(f"restored at {halted_at}")


# --- folders of this machine ------------------------------------------------------------------------------------------


def test_data_of_this_machine_is_used_where_it_lies(user: User) -> None:
    """No copy of a large folder is made; a script that unpacks in place, as many do, does not change the original."""
    data = user.folder / "stores" / "data"
    data.mkdir(parents=True)
    (data / "ubyte").write_text("0123")
    subprocess.run(["gzip", "ubyte"], cwd=data, check=True)
    (data / "a b").write_text("as it was")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.iterdir()}
    script = 'cd "$DATA_DIR" && gunzip ubyte.gz && echo changed > "a b" && cat ubyte "a b" > "$RESULT_DIR/seen"'
    folder = user.command(script, **host_store(user.folder / "stores"))
    job = user.train(folder)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (user.results(job) / "seen").read_text() == "0123changed\n"
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.iterdir()} == before
    copies = [path for path in user.home.rglob("ubyte.gz") if path.is_file()]
    assert copies == [], "nothing was copied"


def test_results_into_a_folder_of_this_machine(user: User) -> None:
    """People without an object store keep results where they say, as FfDL laid them out."""
    stores = user.folder / "stores with spaces ž"
    (stores / "data").mkdir(parents=True)
    job = user.train(user.command('echo kept > "$RESULT_DIR/a b"', **host_store(stores, "my results")))
    assert user.until_over(job).state == "COMPLETED", user.story()
    stored = tree(stores / "my results" / job)
    assert {"a b", "status.json", "learner-1/training-log.txt", "_submitted_code/model.zip"} <= set(stored)
    user.ffdl("download", job, "-d", "here")
    assert tree(user.folder / "here" / f"{job}-results") == stored


def test_a_data_folder_that_is_not_there(user: User) -> None:
    """Said at submit, with its name."""
    folder = user.command("true", **host_store(user.folder / "nowhere"))
    assert str(user.folder / "nowhere" / "data") in user.ffdl("train", str(folder / "manifest.yml"), code=2).stderr


@pytest.fixture
def read_only(user: User) -> Path:
    """A folder `stores` that can be written but for `stores/results`."""
    stores = user.folder / "stores"
    for name in ("data", "results"):
        (stores / name).mkdir(parents=True)
    return stores


def test_a_results_folder_that_is_read_only(user: User, read_only: Path, setting: Setting) -> None:
    """Results that can't be written are a red step with the reason, and stay on the job's volume."""
    setting("FFDL_RETRY_SECONDS", "1")
    results = read_only / "results"
    as_root = os.geteuid() == 0
    if as_root:
        subprocess.run(["mount", "--bind", "-o", "ro", results, results], check=True)
    else:
        results.chmod(0o555)
    try:
        job = user.train(user.command('echo kept > "$RESULT_DIR/kept"', **host_store(read_only, "results")))
        reason = failed(user, job)
    finally:
        if as_root:
            subprocess.run(["umount", results], check=True)
        else:
            results.chmod(0o755)
    assert "'results'" in reason, reason
    assert ("Read-only" if as_root else "denied") in reason, reason
    assert "missing" in reason, reason
    kept = list((user.home / "jobs" / job).rglob("kept"))
    assert [path.read_text() for path in kept] == ["kept\n"]


def test_no_results_are_kept_where_none_are_wanted(user: User) -> None:
    """`container: none` is FfDL's way to say so."""
    (user.folder / "stores" / "data").mkdir(parents=True)
    job = user.train(user.command('echo x > "$RESULT_DIR/x"', **host_store(user.folder / "stores", "none")))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert [entry.name for entry in (user.folder / "stores").iterdir()] == ["data"]
    assert not user.results(job).exists()


def test_downloading_what_was_not_kept(user: User) -> None:
    """The reason is that of the download, not that of some file of ours."""
    (user.folder / "stores" / "data").mkdir(parents=True)
    job = user.train(user.command("true", **host_store(user.folder / "stores", "none")))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert "no results" in user.ffdl("download", job, code=None).stderr


# --- the disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(user: User) -> Iterator[None]:
    """The user's home is a file system of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    user.home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", user.home], check=True)
    try:
        yield
        for job in user.engine.ids():
            user.ffdl("delete", job, "-y", "--results")
        user.wait_for(lambda: not user.processes(), "the end")
    finally:
        subprocess.run(["umount", "-l", user.home], check=True)
        user.ffdl("list")


def fill_up(user: User) -> Path:
    """Leaves no room on the small disk. Returns the file to remove."""
    ballast = user.home / "ballast"
    with open(ballast, "wb", buffering=0) as stream:
        for size in (1 << 20, 4096):
            while shutil.disk_usage(user.home).free >= size:
                stream.write(bytes(size))
    return ballast


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_is_full_while_checkpointing(user: User, short_model: bytes) -> None:
    """A full disk is nobody's lost run: training goes on, and with room again the job ends with the same model."""
    job = user.train(user.job(env=SHORT, checkpoint={"interval": "5 steps"}))
    user.until_step(job, 12)
    ballast = fill_up(user)
    assert job in user.ffdl("list").stdout
    before = user.pids("learner")
    assert user.kill("learner")
    user.wait_for(lambda: bool(set(user.pids("learner")) - set(before)), "another try")
    ballast.unlink()
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_stays_full(user: User, short_model: bytes) -> None:
    """A script that can't write its model fails with its own words; run again with room it gives the model."""
    job = user.train(user.job(env=SHORT, checkpoint={"interval": "5 steps"}))
    user.until_step(job, 12)
    ballast = fill_up(user)
    user.wait_for(lambda: not user.pids("learner"), "the end of the script")
    ballast.unlink()
    assert failed(user, job) == "learner 1 exited with code 1"
    assert "No space left" in user.ffdl("logs", job).stdout
    again = user.ffdl("resubmit", job).stdout.removeprefix("Model ID: ").strip()
    assert user.until_over(again).state == "COMPLETED", user.story()
    assert user.model(again) == short_model


# --- checkpoints ------------------------------------------------------------------------------------------------------


def damage(folder: Path, dice: random.Random) -> str:
    """Tears or turns one byte of a checkpoint. Returns what it did."""
    victim = dice.choice(sorted(path for path in folder.iterdir() if path.stat().st_size))
    data = bytearray(victim.read_bytes())
    at = dice.randrange(len(data))
    if dice.random() < 0.5:
        victim.write_bytes(data[:at])
        return f"{victim.name} cut after {at} bytes"
    data[at] ^= 1 << dice.randrange(8)
    victim.write_bytes(data)
    return f"{victim.name}: byte {at} turned"


def test_a_torn_checkpoint_is_not_restored(user: User, short_model: bytes, dice: random.Random) -> None:
    """Storage lies now and then. The checkpoint before the torn one is used, and the model is the same."""
    job = user.train(user.job(env=SHORT, checkpoint={"interval": "10 steps"}))
    for step in (15, 35):
        user.until_step(job, step)
        user.ffdl("halt", job)
        checkpoints = user.home / "jobs" / job / "claims" / "job" / "job" / "checkpoints"
        committed = sorted(int(path.name.removeprefix("step-")) for path in checkpoints.glob("step-*"))
        assert len(committed) > 1
        print(damage(checkpoints / f"step-{committed[-1]}", dice))
        user.ffdl("resume", job)
        begun = f"restored at {committed[-2]}"
        user.wait_for(lambda begun=begun: begun in user.ffdl("logs", job).stdout, begun)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.model(job) == short_model


# --- code -------------------------------------------------------------------------------------------------------------


def test_code_as_a_zip_and_as_a_folder(user: User) -> None:
    """Both arrive alike, without what .ffdlignore names, and what was submitted is kept with the results."""
    folder = user.command('find . -type f | sort > "$RESULT_DIR/files"; sh ./tool.sh > "$RESULT_DIR/said"')
    (folder / "tool.sh").write_text("echo ran\n")
    (folder / "sub folder").mkdir()
    for name in ("sub folder/kept", "sub folder/scratch.tmp", "big.tmp", "not.tmp"):
        (folder / name).write_text(name)
    (folder / ".ffdlignore").write_text("*.tmp\n!not.tmp\nmanifest.yml\n")
    archive = user.folder / "code.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for name in ("tool.sh", "train.py", "sub folder/kept", "not.tmp", ".ffdlignore"):
            target.write(folder / name, name)
    seen = []
    for arguments in ([], [str(archive)]):
        job = user.train(folder, *arguments)
        assert user.until_over(job).state == "COMPLETED", user.story()
        assert (user.results(job) / "said").read_text() == "ran\n"
        seen.append((user.results(job) / "files").read_text().split("\n"))
        with zipfile.ZipFile(user.results(job) / "_submitted_code" / "model.zip") as kept:
            assert "sub folder/kept" in kept.namelist()
            assert "big.tmp" not in kept.namelist()
    assert [line for line in seen[0] if "ffdlignore" not in line] == [
        "./not.tmp", "./sub folder/kept", "./tool.sh", "./train.py", "",
    ]  # fmt: skip
    assert [line for line in seen[1] if "ffdlignore" not in line] == [
        line for line in seen[0] if "ffdlignore" not in line
    ]


def test_the_record_names_what_was_stored(user: User) -> None:
    """status.json, written last, says of each file how long it is: whoever copies the folder on can check it."""
    job = user.train(user.command('head -c 1000 /dev/zero > "$RESULT_DIR/zeros"'))
    assert user.until_over(job).state == "COMPLETED"
    record = json.loads((user.results(job) / "status.json").read_text())
    sizes = {entry["name"]: entry["size"] for entry in record["files"]}
    assert sizes["zeros"] == 1000
    assert set(sizes) == set(tree(user.results(job))) - {"status.json"}
