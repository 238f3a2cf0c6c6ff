"""A checkpoint is committed or it is not there: whatever is torn, killed or forged, the last whole one comes back."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffdl.learner import checkpoint, encoding
from ffdl.learner.saver import Saver


def state_of(step: int, size: int = 1000) -> dict[str, Any]:
    """What a training would have at that step; everything in it depends on the step."""
    rng = np.random.default_rng(step)
    return {"step": step, "weights": rng.random(size), "bias": rng.random(3, np.float32), "text": f"at {step}"}


def assert_state(state: Any, step: int, size: int = 1000) -> None:
    expected = state_of(step, size)
    assert {name: type(value) for name, value in state.items()} == {name: type(v) for name, v in expected.items()}
    assert state["step"] == step
    assert state["text"] == expected["text"]
    assert state["weights"].tobytes() == expected["weights"].tobytes()
    assert state["bias"].tobytes() == expected["bias"].tobytes()


def commit(folder: Path, step: int, **about: Any) -> checkpoint.Checkpoint:
    encoded = encoding.encode(state_of(step))
    about = {"generation": 1, "epoch": 1, "world_size": 1} | about
    return checkpoint.write(str(folder), step, encoded.document(), encoded.contents, **about)


def restored(folder: Path) -> tuple[int | None, list[str]]:
    """The step that comes back, checked, and the warnings."""
    words: list[str] = []
    found = checkpoint.restore(str(folder), words.append)
    if found is None:
        return None, words
    assert_state(found[1], found[0].step)
    return found[0].step, words


def steps(folder: Path) -> list[int]:
    return [each.step for each in checkpoint.committed(str(folder))]


def test_marker_says_what_is_there(tmp_path: Path) -> None:
    """Whoever ships or restores a checkpoint checks it against its marker alone."""
    made = commit(tmp_path, 12, generation=4, epoch=2, world_size=3)
    marker = json.loads((tmp_path / "step-12" / "COMMITTED").read_text())
    assert made == checkpoint.committed(str(tmp_path))[0]
    assert made.marker == marker
    assert (marker["step"], marker["generation"], marker["epoch"], marker["world_size"]) == (12, 4, 2, 3)
    assert sorted([*marker["files"], "COMMITTED"]) == sorted(os.listdir(tmp_path / "step-12"))
    for name, about in marker["files"].items():
        assert about["size"] == (tmp_path / "step-12" / name).stat().st_size
        assert about["digest"].startswith("sha256:")
    assert checkpoint.verify(made.path)


def test_readable_whatever_the_umask(tmp_path: Path) -> None:
    """The helper that ships checkpoints runs as someone else than the user's image."""
    (tmp_path / "shared").mkdir()
    os.chmod(tmp_path / "shared", 0o2775)
    before = os.umask(0o077)
    try:
        commit(tmp_path / "shared", 1)
    finally:
        os.umask(before)
    folder = tmp_path / "shared" / "step-1"
    assert stat.S_IMODE(folder.stat().st_mode) & 0o755 == 0o755
    assert folder.stat().st_mode & stat.S_ISGID  # the volume's group stays the group of all its files
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o644}


def test_torn_at_any_byte_is_never_restored(tmp_path: Path) -> None:
    """A checkpoint that a broken disk or a crash changed anywhere is passed over for the one before it."""
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "step-2", whole)
    files = sorted(path.name for path in whole.iterdir())
    for _ in range(300):
        shutil.rmtree(tmp_path / "step-2")
        shutil.copytree(whole, tmp_path / "step-2")
        name = dice.choice(files)
        target = tmp_path / "step-2" / name
        data = bytearray(target.read_bytes())
        where, how = dice.randrange(len(data)), dice.choice(["cut", "flip", "zero", "grow", "gone"])
        if how == "cut":
            data = data[:where]
        elif how == "flip":
            data[where] ^= 1 << dice.randrange(8)
        elif how == "zero":
            data[where:] = bytes(len(data) - where)
        elif how == "grow":
            data[where:where] = dice.randbytes(dice.randrange(1, 9))
        target.write_bytes(data)
        if how == "gone":
            target.unlink()
        elif data == (whole / name).read_bytes():
            continue
        step, words = restored(tmp_path)  # checks that the state is exactly that of its step
        if step == 2:  # a marker may say the same in other words: white space
            assert name == "COMMITTED"
            assert json.loads(data) == json.loads((whole / name).read_bytes())
            continue
        assert step == 1, (name, how, where)
        assert not checkpoint.verify(str(tmp_path / "step-2"))
        assert name == "COMMITTED" or "step-2" in words[0]


def test_newest_is_the_one_committed_last(tmp_path: Path) -> None:
    """A script that counts its steps anew each epoch goes on from its latest state, not from its largest number."""
    for step in (5, 90, 3):
        commit(tmp_path, step)
    assert steps(tmp_path) == [3, 90, 5]
    assert restored(tmp_path)[0] == 3


def test_a_step_written_again_replaces_itself_at_once(tmp_path: Path) -> None:
    """At no moment is the only checkpoint missing, and only the new one's files stay."""
    first = commit(tmp_path, 7)
    for generation in (2, 3, 4):
        second = commit(tmp_path, 7, generation=generation)
        assert set(second.marker["files"]) != set(first.marker["files"])
        assert set(os.listdir(second.path)) == {*second.marker["files"], "COMMITTED"}
        assert restored(tmp_path) == (7, [])
        first = second


def test_pruning_keeps_the_last_ones(tmp_path: Path) -> None:
    """`checkpoint.keep` of them stay, the newest always; a user's own folders and files are never touched."""
    for step in range(1, 7):
        commit(tmp_path, step)
    (tmp_path / "step-2" / "mine.txt").write_text("a user's")
    (tmp_path / "step-100").mkdir()
    (tmp_path / "step-100" / "state.json").write_text("a user's")
    (tmp_path / "step-0001").mkdir()
    checkpoint.prune(str(tmp_path), 3)
    assert steps(tmp_path) == [6, 5, 4]
    checkpoint.prune(str(tmp_path), 0)
    assert steps(tmp_path) == [6]
    assert sorted(os.listdir(tmp_path)) == ["step-0001", "step-100", "step-2", "step-6"]
    assert os.listdir(tmp_path / "step-2") == ["mine.txt"]
    assert (tmp_path / "step-100" / "state.json").read_text() == "a user's"


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    """Killed again and again while saving, a job does not fill its volume."""
    commit(tmp_path, 1)
    for step, missing in ((2, ()), (3, ("state.json",)), (4, ("state.json", "arrays.bin"))):
        commit(tmp_path, step)
        os.rename(tmp_path / f"step-{step}" / "COMMITTED", tmp_path / f"step-{step}" / "COMMITTED.tmp")
        for name in missing:
            (tmp_path / f"step-{step}" / name).unlink()
    checkpoint.prune(str(tmp_path), 3)
    assert os.listdir(tmp_path) == ["step-1"]


def test_checkpoints_of_a_later_version_are_left_alone(tmp_path: Path) -> None:
    """An older library in an older image neither restores nor removes what it does not understand."""
    made = commit(tmp_path, 1)
    marker = made.marker | {"format": 2, "check": ""}
    marker["check"] = checkpoint._checksum(marker)
    (tmp_path / "step-1" / "COMMITTED").write_text(json.dumps(marker))
    checkpoint.prune(str(tmp_path), 1)
    assert steps(tmp_path) == []
    assert restored(tmp_path) == (None, [])
    assert len(os.listdir(tmp_path / "step-1")) == 3


def test_symlinks_are_not_followed(tmp_path: Path) -> None:
    """Code that isn't trusted can't make us read, ship or overwrite a file elsewhere by a link in its checkpoints."""
    folder = tmp_path / "checkpoints"
    outside = commit(tmp_path / "outside", 3)
    for step in (1, 2):
        commit(folder, step)
    (folder / "step-3").symlink_to(outside.path)
    for name in ("COMMITTED", "arrays.bin"):
        file = folder / "step-2" / name
        os.rename(file, tmp_path / name)
        file.symlink_to(tmp_path / name)
        assert not checkpoint.verify(str(folder / "step-2"))
        assert restored(folder)[0] == 1
        file.unlink()
        os.rename(tmp_path / name, file)
    assert restored(folder)[0] == 2
    secret = tmp_path / "secret"
    secret.write_text("keep out")
    (folder / "step-4").mkdir()
    for name in ("state.json", "COMMITTED.tmp"):
        (folder / "step-4" / name).symlink_to(secret)
    commit(folder, 4)
    assert secret.read_text() == "keep out"
    assert restored(folder)[0] == 4
    with pytest.raises(OSError, match="step-3"):
        commit(folder, 3)
    os.mkfifo(folder / "step-4" / "fifo")
    os.rename(folder / "step-4" / "fifo", folder / "step-4" / "COMMITTED")  # would hold up who opens it
    assert restored(folder)[0] == 2


@pytest.mark.parametrize(
    "forged",
    [
        {"step": "1"},
        {"step": 2},
        {"files": []},
        {"files": {"../../secret": {"size": 1, "digest": "x"}}},
        {"files": {"a": {"size": "1"}}},
        {"sequence": None},
    ],
)
def test_forged_markers(tmp_path: Path, forged: dict[str, Any]) -> None:
    """A marker may be anything: the programs that read it neither fail nor believe it."""
    marker = commit(tmp_path, 1).marker | forged
    marker["check"] = checkpoint._checksum(marker)
    (tmp_path / "step-1" / "COMMITTED").write_text(json.dumps(marker))
    assert restored(tmp_path)[0] is None
    assert not checkpoint.verify(str(tmp_path / "step-1")) or forged == {"step": 2}


def test_an_unreadable_store_is_no_fresh_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the volume fails for a moment, training must not start over and prune what it could not read."""
    commit(tmp_path, 1)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint, "load", fail)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.restore(str(tmp_path), print)


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    """The shipper reads while training commits and prunes: what it finds whole is whole."""
    done = threading.Event()
    seen, faults = set(), []

    def read() -> None:
        while not done.is_set():
            for each in checkpoint.committed(str(tmp_path)):
                try:
                    assert_state(checkpoint.load(each), each.step)
                    seen.add(each.step)
                except FileNotFoundError:
                    continue  # pruned while it was read
                except Exception as error:  # noqa: BLE001
                    faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(1, 60):
        commit(tmp_path, step % 20)
        checkpoint.prune(str(tmp_path), 2)
    done.set()
    reader.join()
    assert not faults
    assert seen


TRAINING = """
import sys, numpy as np
from ffdl.learner.saver import Saver
def state_of(step, size):
    rng = np.random.default_rng(step)
    return {"step": step, "weights": rng.random(size), "bias": rng.random(3, np.float32), "text": f"at {step}"}
folder, first, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
saver = Saver(folder, 2, {"generation": 1, "epoch": 1, "world_size": 1}, lambda step: print(step, flush=True))
for step in range(first, first + 100000):
    saver.snapshot(step, state_of(step, size))
"""


def test_killed_in_the_middle_of_a_save(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    """kill -9 at any moment: the last committed state comes back exactly, never an older one than was announced."""
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    folder, size, first, torn = tmp_path / "checkpoints", 200_000, 1, 0
    for _ in range(12):
        process = start(TRAINING, str(folder), str(first), str(size))
        assert process.stdout is not None
        announced = 0
        for _ in range(dice.randrange(1, 4)):
            announced = int(process.stdout.readline())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(dice.random() * 0.05)  # a random moment of what follows
        process.kill()
        process.wait()
        torn += len(list(folder.glob("*/COMMITTED.tmp")))
        rest = process.stdout.read().split()
        announced = max([announced, *map(int, rest)])
        found = checkpoint.restore(str(folder), print)
        assert found is not None
        assert_state(found[1], found[0].step, size)
        assert found[0].step >= announced
        first = found[0].step + 1
    assert torn  # some were hit in the middle
    checkpoint.prune(str(folder), 2)
    left = [path for path in folder.iterdir() if any(path.iterdir())]  # an empty folder may be left
    assert len(left) <= 2
    assert {path.name for path in folder.glob("*/*")} == {"COMMITTED", "state.json", "arrays.bin"}


@pytest.fixture
def warnings(capfd: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    return lambda: capfd.readouterr().err.splitlines()


def saver_for(folder: Path, told: list[int], keep: int = 3) -> Saver:
    return Saver(str(folder), keep, {"generation": 1, "epoch": 1, "world_size": 1}, told.append, pause=0.01)


@contextlib.contextmanager
def file_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failing_disk_does_not_stop_training(tmp_path: Path, warnings: Callable[[], list[str]]) -> None:
    """Training goes on, the last committed checkpoint stays, one error is one warning; it saves again when it can."""
    told: list[int] = []
    saver = saver_for(tmp_path, told)
    saver.snapshot(1, state_of(1))
    saver.finish()
    with file_limit(2000):
        for step in (2, 3):
            saver.snapshot(step, state_of(step))
            saver.finish()
        assert not saver.save(4, state_of(4))
    said = warnings()
    assert len(said) == 1
    assert "checkpoint of step 2 could not be written" in said[0]
    assert str(tmp_path) in said[0]
    assert os.listdir(tmp_path) == ["step-1"]
    saver.snapshot(5, state_of(5))
    saver.finish()
    assert told == [1, 5]
    assert restored(tmp_path) == (5, [])


def test_what_all_wait_for_is_tried_again(tmp_path: Path, warnings: Callable[[], list[str]]) -> None:
    """A learner whose disk was full has in the end what the others have; it is busy until then."""
    told: list[int] = []
    saver = saver_for(tmp_path, told)
    with file_limit(2000):
        saver.snapshot(1, state_of(1), insists=True)
        time.sleep(0.1)
        assert saver.busy
        saver.snapshot(2, state_of(2), insists=True)
        time.sleep(0.1)
        assert (saver.busy, told) == (True, [])
    while saver.busy:
        time.sleep(0.01)
    assert told == [2]
    assert restored(tmp_path) == (2, [])
    assert len(warnings()) == 1


def test_going_back_removes_nothing(tmp_path: Path) -> None:
    """Who goes back to an earlier step may not be able to: what is there goes only as newer ones come."""
    saver = saver_for(tmp_path, [])
    for step in (40, 60, 80):
        assert saver.save(step, state_of(step))
    for step in (-1, 40, 40):
        found = checkpoint.restore_at(str(tmp_path), step)
        assert (found is None) == (step < 0)
    with pytest.raises(FileNotFoundError, match="no checkpoint of step 50"):
        checkpoint.restore_at(str(tmp_path), 50)
    assert steps(tmp_path) == [80, 60, 40]
    saver.spared = 40
    for step, left in ((50, [50, 80, 60, 40]), (60, [60, 50, 80, 40]), (70, [70, 60, 50, 40])):
        assert saver.save(step, state_of(step))
        assert steps(tmp_path) == left
    saver.spared = 70
    assert saver.save(80, state_of(80))
    assert steps(tmp_path) == [80, 70, 60]


def test_a_snapshot_is_of_its_moment(tmp_path: Path) -> None:
    """Training changes its arrays in place while the copy is persisted; what is committed is the state as it was."""
    told: list[int] = []
    saver = saver_for(tmp_path, told)
    state = state_of(1, 300_000)
    weights, plain = state["weights"].copy(), ["a"]
    state["plain"] = plain
    for step in (1, 2):
        saver.snapshot(step, state)
        state["weights"] += 1
        state["bias"][:] = 0
        plain.append("b")
    saver.finish()
    found = checkpoint.restore(str(tmp_path), print)
    assert found is not None
    assert (found[1]["weights"] == weights + 1).all()
    assert found[1]["plain"] == ["a", "b"]
    assert told == [1, 2]


FULL = """
import os, sys
import numpy as np
from ffdl.learner import checkpoint
from ffdl.learner.saver import Saver
folder = sys.argv[1]
def state(step, size):
    return {"step": step, "weights": np.full(size, step, np.uint8)}
saver = Saver(folder, 3, {"generation": 1, "epoch": 1, "world_size": 1}, lambda step: None, pause=0.01)
def stay():
    return sorted(each.step for each in checkpoint.committed(folder))
for step in range(1, 4):
    assert saver.save(step, state(step, 300_000))
assert saver.save(4, state(4, 300_000)), "the one that goes next must make room"
assert stay() == [2, 3, 4], stay()
assert not saver.save(5, state(5, 900_000))
assert stay() == [3, 4], stay()  # one was given for the try, and never more than one
assert not saver.save(6, state(6, 900_000))
assert stay() == [3, 4], stay()
assert sorted(os.listdir(folder)) == ["step-3", "step-4"]
assert all(checkpoint.verify(each.path) for each in checkpoint.committed(folder))
assert checkpoint.restore(folder, print)[1]["weights"].tobytes() == bytes([4]) * 300_000
assert saver.save(7, state(7, 300_000))
print("fine")
"""


def test_disk_full(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    """On a full disk the newest checkpoint stays whole, nothing half-written takes up room, and room is used again."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no user and mount namespaces")
    inside = 'mount -t tmpfs -o size=1300k none "$1" && exec "$0" -W error -c "$2" "$1"'
    command = ["unshare", "-Urm", "sh", "-c", inside, sys.executable, str(tmp_path), FULL]
    process = start("", command=command)
    output, errors = process.communicate(timeout=60)
    assert output == "fine\n", errors
    assert errors.count("No space left on device") == 1
