"""Data stores that are folders of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.local_user import LocalUser
from tests.behaviours.stores import Setting, store, tree
from tests.steps import s3 as servers


def host_store(folder: Path, results: str | None = None) -> dict[str, Any]:
    """The manifest's key for folders of this machine: `folder`/data, and `folder`/`results`."""
    described: dict[str, Any] = {
        "id": "here",
        "type": "mount_volume",
        "training_data": {"container": "data"},
        "connection": {"type": "host_mount", "path": str(folder)},
    }
    return {"data_stores": [described | ({"training_results": {"container": results}} if results else {})]}


def test_data_of_this_machine_is_used_where_it_lies(user: LocalUser) -> None:
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
    # os.walk: what is tidied up meanwhile is no error
    found = [Path(folder, "ubyte.gz") for folder, _, names in os.walk(user.home) if "ubyte.gz" in names]
    copies = [path for path in found if path.is_file()]  # a file that says "removed" is none
    assert copies == [], "nothing was copied"


def test_results_into_a_folder_of_this_machine(user: LocalUser) -> None:
    """People without an object store keep results where they say, as FfDL laid them out."""
    stores = user.folder / "stores with spaces ž"
    (stores / "data").mkdir(parents=True)
    job = user.train(user.command('echo kept > "$RESULT_DIR/a b"', **host_store(stores, "my results")))
    assert user.until_over(job).state == "COMPLETED", user.story()
    stored = tree(stores / "my results" / job)
    assert {"a b", "status.json", "learner-1/training-log.txt", "_submitted_code/model.zip"} <= set(stored)
    user.ffdl("download", job, "-d", "here")
    assert tree(user.folder / "here" / f"{job}-results") == stored


def test_a_data_folder_that_is_not_there(user: LocalUser) -> None:
    """Said at submit, with its name."""
    folder = user.command("true", **host_store(user.folder / "nowhere"))
    assert str(user.folder / "nowhere" / "data") in user.ffdl("train", str(folder / "manifest.yml"), code=2).stderr


@pytest.fixture
def read_only(user: LocalUser) -> Path:
    """A folder `stores` that can be written but for `stores/results`."""
    stores = user.folder / "stores"
    for name in ("data", "results"):
        (stores / name).mkdir(parents=True)
    return stores


def test_a_results_folder_that_is_read_only(user: LocalUser, read_only: Path, setting: Setting) -> None:
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
        reason = user.failed(job)
    finally:
        if as_root:
            subprocess.run(["umount", "-l", results], check=True)  # a pod that is just ending may still hold it
        else:
            results.chmod(0o755)
    assert "'results'" in reason, reason
    assert ("Read-only" if as_root else "denied") in reason, reason
    assert "missing" in reason, reason
    kept = list((user.volume(job) / "results").rglob("kept"))
    assert [path.read_text() for path in kept] == ["kept\n"]


def test_no_results_are_kept_where_none_are_wanted(user: LocalUser) -> None:
    """`container: none` is FfDL's way to say so."""
    (user.folder / "stores" / "data").mkdir(parents=True)
    job = user.train(user.command('echo x > "$RESULT_DIR/x"', **host_store(user.folder / "stores", "none")))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert [entry.name for entry in (user.folder / "stores").iterdir()] == ["data"]
    assert not user.results(job).exists()


def test_credentials_are_kept_in_one_file_for_this_user_alone(
    user: LocalUser, s3: servers.Server, buckets: tuple[Path, Path]
) -> None:
    """A colleague with an account on the same machine must not find them."""
    data, results = buckets
    (data / "x").write_text("x")
    job = user.train(user.command("true", **store(s3.endpoint, data.name, results.name)))
    assert user.until_over(job).state == "COMPLETED", user.story()
    user.until_at_rest()  # while the engine works, files come and go under who reads them all
    folder = user.home / "jobs" / job
    files = [path for path in folder.rglob("*") if path.is_file() and servers.SECRET.encode() in path.read_bytes()]
    assert [str(path.relative_to(folder)) for path in files] == [f"objects/secrets/{job}-store/credentials.json"]
    assert files[0].stat().st_mode & 0o077 == 0
