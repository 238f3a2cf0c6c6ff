"""Data stores: training data comes in, results go out, and what a store does not do is said in one line."""

from __future__ import annotations

import contextlib
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.stores import Setting, fill, store, tree
from tests.behaviours.user import GATE, GATED, SHORT, User
from tests.steps import s3 as servers

PATIENT = pytest.mark.local("a cluster's steps try a store for five and ten minutes, whatever is set here")
NAMES = [
    "a b/c d.txt", "ünïcödé/日本語.bin", "-rf", "--help/-x", "x" * 200, "p+q=r&s", "50%", "50%25", "a#b",
    "deep/er/and/deeper",
]  # fmt: skip
COPY = 'cp -r "$DATA_DIR" "$RESULT_DIR/copy" && echo "$DATA_DIR" > "$RESULT_DIR/where"'


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
    look = (
        "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
        "find / -xdev -maxdepth 3 -path '/ffdl*' -o -maxdepth 1 -path '/job*'; "
        f"cat /ffdl/*/* /job/.ffdl/* 2>/dev/null; ls -d /ffdl/*; touch /job/looked; {GATE}"
    )
    folder = user.command(look, **store(s3.endpoint, data.name, results.name))
    (user.folder / "code").mkdir()
    job = user.train(folder, str(user.folder / "code"))
    user.wait_for(lambda: (user.volume(job) / "job/looked").exists(), "the script's look")
    everything = "".join(user.ffdl(*arguments).stdout for arguments in (["list"], ["list", "-o", "json"]))
    for pid in user.processes():
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                everything += Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    verbs = [["show"], ["show", "-o", "json"], ["show", "--workflow"], ["logs"], ["events"], ["metrics"]]
    verbs += [["logs", "--step", step] for step in ("download", "checkpoint", "store-results")]
    for verb in verbs:
        done = user.ffdl(*verb, job)
        everything += done.stdout + done.stderr
    assert "/ffdl/config" in everything, "the script has looked around"
    assert servers.SECRET not in everything
    user.until_at_rest()  # while the engine works, files come and go under who reads them all
    assert servers.SECRET not in user.record(job)
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
    """Where a manifest names no credentials, those of the submitter's environment go along; the learner sees none."""
    data, results = buckets
    (data / "x").write_text("kept")
    changes = store(s3.endpoint, data.name, results.name)
    del changes["data_stores"][0]["connection"]["user_name"], changes["data_stores"][0]["connection"]["password"]
    user.env |= {"AWS_ACCESS_KEY_ID": servers.KEY, "AWS_SECRET_ACCESS_KEY": servers.SECRET}
    user.env["FFDL_RETRY_SECONDS"] = "30"
    job = user.train(user.command(f"{COPY}; env; cat /ffdl/*/* 2>/dev/null || true", **changes))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (results / job / "copy" / "x").read_text() == "kept"
    printed = user.ffdl("logs", job).stdout
    assert "AWS_" not in printed
    assert servers.SECRET not in printed
    assert servers.SECRET not in user.ffdl("show", job, "-o", "json").stdout


def test_no_credentials_anywhere(user: User, s3: servers.Server, buckets: tuple[Path, Path], setting: Setting) -> None:
    """A job whose store nobody has given a key for says so within seconds, and says what to do."""
    setting("FFDL_RETRY_SECONDS", "1")
    changes = store(s3.endpoint, buckets[0].name, buckets[1].name)
    del changes["data_stores"][0]["connection"]["user_name"], changes["data_stores"][0]["connection"]["password"]
    for name in [name for name in user.env if name.startswith("AWS_")]:
        del user.env[name]
    job = user.train(user.command("true", **changes))
    reason = user.failed(job)
    assert "no credentials" in reason
    assert "export AWS_ACCESS_KEY_ID" in reason


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("password", "authentication"),
        ("bucket", "bucket 'no-such-bucket'"),
        pytest.param("port", "connection", marks=PATIENT),
    ],
)
def test_a_store_that_can_not_be_read(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], setting: Setting, wrong: str, said: str
) -> None:
    """A typing error in a manifest is a red job within seconds that says what is wrong with which bucket."""
    setting("FFDL_RETRY_SECONDS", "1" if wrong == "port" else "10")  # so long may an answer take, too
    data, results = buckets
    changes = {
        "password": store(s3.endpoint, data.name, results.name, password="not-it"),
        "bucket": store(s3.endpoint, "no-such-bucket", results.name),
        "port": store("http://127.0.0.1:9", data.name, results.name),
    }[wrong]
    job = user.train(user.command("true", **changes))
    reason = user.failed(job)
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
    with servers.Proxy(s3.port, dice.randrange(2**32), s3.address) as proxy:
        proxy.cut = (50_000, 900_000)
        job = user.train(user.command(COPY, **store(proxy.endpoint, data.name, results.name)))
        assert user.until_over(job).state == "COMPLETED", user.story()
        assert proxy.connections > 5
    assert tree(results / job / "copy") == tree(data)


def gated(user: User, script: str, **changes: Any) -> str:
    """A job that waits at the gate once it has written something."""
    job = user.train(user.command(f'{script}; touch "$JOB_STATE_DIR/there"; {GATE}', **changes))
    user.wait_for(lambda: (user.volume(job) / "job/there").exists(), "the script's files")
    return job


def test_a_store_that_refuses_results_for_a_while(user: User, s3: servers.Server, buckets: tuple[Path, Path]) -> None:
    """A store that restarts at the wrong moment must not cost a night's training."""
    data, results = buckets
    with servers.Proxy(s3.port, address=s3.address) as proxy:
        job = gated(user, 'echo kept > "$RESULT_DIR/kept"', **store(proxy.endpoint, data.name, results.name))
        proxy.refuse = True
        before = proxy.connections
        proxy.cut_all()
        user.open_gate(job)
        user.until(job, lambda status: status.state == "STORING")
        user.wait_for(lambda: proxy.connections > before + 3, "another try")
        proxy.refuse = False
        assert user.until_over(job).state == "COMPLETED", user.story()
    assert (results / job / "kept").read_text() == "kept\n"


@PATIENT
def test_a_store_that_refuses_results_for_good(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], setting: Setting
) -> None:
    """Trained and not stored is red, and says what is missing and where it still is: never a silent loss."""
    setting("FFDL_RETRY_SECONDS", "5")  # so long may an answer take, too
    data, results = buckets
    with servers.Proxy(s3.port, address=s3.address) as proxy:
        job = gated(user, 'echo kept > "$RESULT_DIR/kept"', **store(proxy.endpoint, data.name, results.name))
        proxy.refuse = True
        before = proxy.connections
        proxy.cut_all()
        user.open_gate(job)
        reason = user.failed(job)
        assert proxy.connections > before + 3, "it was tried again"
    assert results.name in reason, reason
    assert "missing" in reason, reason
    assert "volume" in reason, reason
    assert user.engine.status(job).error_code == "S303"
    kept = list(user.volume(job).rglob("kept"))
    assert [path.read_text() for path in kept] == ["kept\n"], "the volume is kept when results could not be stored"


def test_halting_while_the_store_is_down(
    user: User, s3: servers.Server, buckets: tuple[Path, Path], setting: Setting
) -> None:
    """The machine is wanted now: a store that is away delays a halt, and neither stops it nor costs a step."""
    setting("FFDL_RETRY_SECONDS", "10")  # so long may an answer take, too
    data, results = buckets
    with servers.Proxy(s3.port, address=s3.address) as proxy:
        job = user.train(user.job(env={**SHORT, **GATED}, **store(proxy.endpoint, data.name, results.name)))
        user.until_step(job, 30)
        proxy.refuse = True
        proxy.cut_all()
        user.ffdl("halt", job)
        assert user.ffdl("status", job).stdout.strip() == "HALTED"
        user.until_at_rest()
        halted_at = user.engine.status(job).step  # where the store is away, the helper's report tells it still
        proxy.refuse = False
        user.ffdl("resume", job)
        shipped = results / job / "checkpoints" / f"step-{halted_at}" / "COMMITTED"
        user.wait_for(shipped.exists, f"{shipped} in the store")
        user.open_gate(job)
        assert user.until_over(job).state == "COMPLETED", user.story()
    again = [line for line in user.ffdl("logs", job).stdout.splitlines() if "restored at" in line]
    assert again[-1].endswith(f"restored at {halted_at}")


def test_no_results_are_kept_where_none_are_wanted(user: User, s3: servers.Server, buckets: tuple[Path, Path]) -> None:
    """`container: none` is FfDL's way to say so; a download says it too, not that some file of ours is missing."""
    data, _ = buckets
    (data / "x").write_text("x")
    before = set(s3.root.rglob("*"))
    job = user.train(user.command('echo x > "$RESULT_DIR/x"', **store(s3.endpoint, data.name, "none")))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert set(s3.root.rglob("*")) == before
    assert "no results" in user.ffdl("download", job, code=None).stderr
    refused = f"{job} keeps no results, and so no checkpoint to go on from: `ffdl resubmit {job}` begins anew"
    assert user.ffdl("resubmit", job, "--from-checkpoint", code=2).stderr == f"Error: {refused}\n"


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
    job = user.train(user.job(env={**SHORT, **GATED}, checkpoint={"interval": "10 steps"}))
    for step in (15, 35):
        user.until_step(job, step)
        user.ffdl("halt", job)
        checkpoints = user.volume(job) / "job" / "checkpoints"
        committed = sorted(int(path.name.removeprefix("step-")) for path in checkpoints.glob("step-*"))
        assert len(committed) > 1
        print(damage(checkpoints / f"step-{committed[-1]}", dice))
        user.ffdl("resume", job)
        begun = f"restored at {committed[-2]}"
        user.wait_for(lambda begun=begun: begun in user.ffdl("logs", job).stdout, begun)
    user.open_gate(job)
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
