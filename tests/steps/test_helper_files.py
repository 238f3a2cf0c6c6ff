"""What helper and agent keep in files or read from them: the journal, the Workflow, what untrusted code wrote."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

import pytest

from ffdl.learner import contract
from ffdl.steps import journal, safe_files
from ffdl.steps.channel import Channel, ClosedError
from ffdl.steps.exits import Ending, Next, judge
from ffdl.steps.install_agent import install
from ffdl.steps.link import Link, helper_wait
from ffdl.steps.oom import MemoryCgroup
from ffdl.steps.view import LocalView, snapshot


def test_a_journal_torn_at_any_byte_keeps_what_was_synced(tmp_path: Path) -> None:
    """A power cut in the middle of a write must not cost the records before it, nor stop the next helper."""
    written = journal.Journal(str(tmp_path), 1)
    written.write({"kind": "done", "index": 0})
    written.write({"kind": "granted", "index": 1})
    written.close()
    whole = (tmp_path / "epoch-1.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1):
        (tmp_path / "epoch-1.jsonl").write_bytes(whole[:length])
        state = journal.read(str(tmp_path))
        complete = whole[:length].count(b"\n")
        assert state.done == ([0] if complete > 1 else [])
        assert state.granted == ({1: 1} if complete > 2 else {})


def test_the_next_epoch_goes_on_and_an_older_one_changes_nothing(tmp_path: Path) -> None:
    """Two helpers at once: what the older one still writes is read by nobody."""
    old = journal.Journal(str(tmp_path), 1)
    old.write({"kind": "checkpoint", "index": 0, "step": 5})
    new = journal.Journal(str(tmp_path), 2)
    assert new.state.checkpoints == {0: 5}
    old.write({"kind": "done", "index": 0})
    new.write({"kind": "ended", "index": 0, "code": 3, "reason": "r"})
    state = journal.read(str(tmp_path))
    assert (state.done, state.ended, state.failed) == ([], "r", {0: 3})
    old.close()
    new.close()


def test_an_epoch_that_died_before_its_first_line_is_passed_over(tmp_path: Path) -> None:
    """The file of the epoch before it still tells what happened."""
    kept = journal.Journal(str(tmp_path), 1)
    kept.write({"kind": "completed"})
    kept.close()
    (tmp_path / "epoch-2.jsonl").write_bytes(b'{"kind": "sta')
    assert journal.read(str(tmp_path)).completed


def test_epochs_are_never_handed_out_twice(tmp_path: Path) -> None:
    """The higher epoch is how agents know whom to follow."""
    views = [LocalView(str(tmp_path)) for _ in range(3)]
    epochs = [view.take_epoch() for view in views for _ in range(3)]
    assert epochs == sorted(set(epochs))
    assert views[0].epoch() == epochs[-1]
    for view in views:
        view.watch.close()


def test_what_the_helper_sees_in_a_workflow() -> None:
    """Attempts that failed are not ends; a node's end is."""
    names = {
        "learner(0:0)": ("Retry", "Succeeded"),
        "learner(1:1)": ("Retry", "Running"),
        "learner(1:1)(0)": ("Pod", "Failed"),
        "learner(1:1)(1)": ("Pod", "Running"),
        "learner(2:2)": ("Retry", "Failed"),
        "learner(2:2)(0)": ("Pod", "Failed"),
        "learner(3:3)(0)": ("Pod", "Pending"),
        "download": ("Retry", "Running"),
        "download(0)": ("Pod", "Failed"),
    }
    nodes = {
        name: {"id": f"id-{name}", "displayName": name, "type": kind, "phase": phase}
        for name, (kind, phase) in names.items()
    }
    nodes["learner(3:3)"] = {"displayName": "learner(3:3)", "type": "Retry", "phase": "Running"}
    nodes["learner(3:3)(0)"] |= {"id": "job-pending", "templateName": "learner"}
    nodes["learner(2:2)(0)"] |= {"message": "main: OOMKilled (exit code 137)"}
    seen = snapshot({"metadata": {"name": "job"}, "spec": {"suspend": True}}, {"nodes": nodes})
    assert (seen.suspended, seen.stop, seen.failed_step) == (True, False, "")
    assert seen.members == {0: "Succeeded", 2: "Failed"}
    assert seen.messages == {2: "main: OOMKilled (exit code 137)"}
    assert seen.oom_kills == {2: 1}
    assert seen.active == {1}
    assert seen.pending == {"job-learner-pending": ""}
    nodes["download"]["phase"] = "Failed"
    stopped = {"metadata": {"annotations": {contract.ANNOTATION_STOP: "now"}}}
    assert snapshot(stopped, {"nodes": nodes}).failed_step == "download"
    assert snapshot(stopped, {}).stop


@pytest.fixture(params=["openat2", "step by step"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything that untrusted code may put into one, on kernels with and without openat2."""
    if request.param == "step by step":

        def missing(*_: object) -> int:
            raise OSError(errno.ENOSYS, "no such call")

        monkeypatch.setattr(safe_files, "_openat2", missing)
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("fine")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(root / "sock"))
    return root


def test_only_regular_files_beneath_are_opened(folder: Path) -> None:
    """A link to a secret in CHECKPOINT_DIR must not carry the secret into the results, and a fifo must hang nobody."""
    held = os.open(folder, os.O_RDONLY)
    descriptor = safe_files.open_beneath(held, "a/b/file")
    assert os.read(descriptor, 10) == b"fine"
    os.close(descriptor)
    for path in ("link", "up/secret", "fifo", "sock", "a", "../secret", "/etc/passwd", "", "a//b/file", "none", "a\0b"):
        with pytest.raises(OSError):  # noqa: PT011 - which one differs with the kernel
            safe_files.open_beneath(held, path)
    os.close(held)


def test_walking_tells_what_it_leaves_out(folder: Path) -> None:
    """A user who wonders where a file of the results is finds it named."""
    skipped: list[str] = []
    assert [(path, size) for path, size, _ in safe_files.walk(str(folder), lambda p, _: skipped.append(p))] == [
        ("a/b/file", 4)
    ]
    assert skipped == ["fifo", "link", "sock", "up"]
    assert list(safe_files.walk(str(folder / "none"))) == []


def test_making_readable_follows_no_link(folder: Path) -> None:
    """Files of mode 0600 are stored; the mode of what a link points to is none of our business."""
    secret = folder.parent / "secret"
    for path in (folder / "a", folder / "a/b", folder / "a/b/file", secret):
        path.chmod(0o700)
    safe_files.make_readable(str(folder))
    assert [p.stat().st_mode & 0o777 for p in (folder / "a/b", folder / "a/b/file", secret)] == [0o755, 0o755, 0o700]


def test_frames_are_bounded_and_survive_being_cut() -> None:
    """Messages arrive in pieces; what never ends must not fill the memory."""
    left, right = socket.socketpair()
    channel = Channel(right)
    whole = json.dumps({"type": "x", "text": "é"}).encode() + b"\n"
    for byte in whole:
        left.send(bytes([byte]))
        received = channel.receive()
    assert received == [{"type": "x", "text": "é"}]
    assert channel.receive() == []
    left.send(b"x" * 60000)
    assert channel.receive() == []
    left.send(b"x" * 60000)
    with pytest.raises(ClosedError):
        channel.receive()
    left.close()
    channel.close()


@pytest.mark.parametrize(
    ("ending", "what"),
    [
        (Ending(0), Next.DONE),
        (Ending(0, asked=True), Next.DONE),
        (Ending(0, asked=True, halted=True), Next.HALTED),
        (Ending(0, asked=True, signalled=True), Next.HALTED),
        (Ending(75, asked=True, halted=True), Next.HALTED),
        (Ending(-15, asked=True, signalled=True), Next.HALTED),
        (Ending(1, asked=True), Next.HALTED),
        (Ending(-9), Next.RESTART),
        (Ending(143), Next.RESTART),
        (Ending(-9, restarts=6), Next.FAILED),
        (Ending(-9, out_of_memory=True), Next.FAILED),
        (Ending(137, out_of_memory=True), Next.FAILED),
        (Ending(75), Next.FAILED),
        (Ending(-11), Next.FAILED),
        (Ending(3), Next.FAILED),
    ],
)
def test_what_an_end_means(ending: Ending, what: Next) -> None:
    """Whether a training is done, halted, unlucky or broken decides what a user pays for it."""
    assert judge(ending)[0] is what


def test_out_of_memory_is_read_from_either_cgroup(tmp_path: Path) -> None:
    """The counter tells a training that needs more memory from one that somebody killed."""
    (tmp_path / "memory/pod").mkdir(parents=True)
    (tmp_path / "memory/pod/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (tmp_path / "memory/pod/memory.limit_in_bytes").write_text("1048576\n")
    (tmp_path / "self").write_text("4:memory:/pod\n0::/\n")
    first = MemoryCgroup(str(tmp_path), str(tmp_path / "self"))
    assert (first.kills(), first.limit()) == (2, 1 << 20)
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 1\noom_group_kill 0\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "self").write_text("0::/kubepods/pod\n")  # the host's path, while the mount shows the container's group
    second = MemoryCgroup(str(tmp_path), str(tmp_path / "self"))
    assert (second.kills(), second.limit()) == (1, None)
    (tmp_path / "self").write_text("")
    assert MemoryCgroup(str(tmp_path), str(tmp_path / "self")).kills() == 0


def test_the_agents_python_starts(tmp_path: Path) -> None:
    """A launcher in a folder with odd names, in an environment that would lead a Python astray."""
    import subprocess
    import sys

    target = install(str(tmp_path / "it's a folder"), sys.executable)
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    command = [target, "-c", "import json, ffdl.steps.agent"]
    assert subprocess.run(command, env=environment, cwd=tmp_path, check=False).returncode == 0


def test_an_older_helper_is_not_heard(tmp_path: Path) -> None:
    """After a partition the older helper may still answer: two that give orders would tear a job apart."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)
    file, clock = tmp_path / "address.json", iter(range(1000))
    link = Link(str(file), {"index": 0}, 0.0)

    def meet(in_file: int, in_welcome: int) -> bool:
        file.write_text(json.dumps({"host": "127.0.0.1", "port": listener.getsockname()[1], "epoch": in_file}))
        link.tick({}, next(clock))
        if link.channel is None:
            return False
        with listener.accept()[0] as helper:
            helper.sendall(json.dumps({"type": "welcome", "epoch": in_welcome}).encode() + b"\n")
            while link.channel is not None and not link.receive(next(clock)):
                pass
        joined = link.joined
        link.drop(next(clock))
        return joined

    assert [meet(5, 5), meet(5, 4), meet(4, 5), meet(6, 6), meet(5, 5)] == [True, False, False, True, False]
    listener.close()


def test_the_wait_for_a_helper_grows_to_a_bound() -> None:
    """Each attempt stays in the Workflow's status for ever: there must not be thousands of them."""
    waits = [helper_wait(attempt) for attempt in (0, 1, 2, 5, 6, 1000)]
    assert waits == [15, 30, 60, 480, 600, 600]
