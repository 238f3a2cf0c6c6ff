"""Deleting pods, launching them once, and who is alive afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ffdl.engines.local import processes, supervisor
from ffdl.engines.local.pod import PodObservation

DELETED = ("Error", -1, "pod deleted")


def verdict(seen: PodObservation) -> tuple[str, int | None, str]:
    return seen.phase, seen.exit_code, seen.message


def test_deleting_asks_mains_process_group_and_waits(pods) -> None:
    """A learner checkpoints on SIGTERM; what has a group of its own, as a learner below its agent, is left to main to
    tell. A shell's child hears it, too, as with Argo's executor: else the shell's trap would wait for it."""
    child = 'trap "echo child >> $0/asked" TERM; echo up > $0/child; while :; do sleep 0.01; done'
    child = f"setsid sh -c '{child}' $J & "
    main = "trap 'sleep 0.2; echo main >> $J/asked; exit 0' TERM; until [ -s $J/child ]; do sleep 0.01; done; "
    asleep = "sh -c 'echo up > $0/up; exec sleep 1000' $J; sleep 1000"  # the shell that traps must have forked by then
    pod = pods.start(f"{child}{main}{asleep}")
    pods.wait_for("up")
    supervisor.terminate(pod)
    supervisor.terminate(pod)
    assert verdict(pods.end(pod)) == DELETED
    assert (pods.shared / "asked").read_text() == "main\n"


def test_deleting_kills_after_the_grace(pods) -> None:
    """A script that hears no SIGTERM still gives its CPUs back, after the time it was given and not before."""
    pod = pods.start("trap '' TERM; echo up > $J/up; while :; do sleep 0.01; done", grace=0.5)
    pods.wait_for("up")
    began = time.monotonic()
    supervisor.terminate(pod)
    assert verdict(pods.end(pod)) == DELETED
    assert 0.5 <= time.monotonic() - began < 30


@pytest.mark.parametrize("before", ["", "gracefully"])
def test_force_does_not_wait(pods, before: str) -> None:
    """`delete` of a job whose pod sits out a long grace."""
    pod = pods.start("trap '' TERM; echo up > $J/up; while :; do sleep 0.01; done", grace=1000.0)
    pods.wait_for("up")
    if before:
        supervisor.terminate(pod)
    supervisor.terminate(pod, force=True)
    assert verdict(pods.end(pod)) == DELETED


@pytest.mark.parametrize("force", [False, True])
def test_deleting_while_an_init_container_runs(pods, force: bool) -> None:
    """Main of a deleted pod must not start any more."""
    pod = pods.start("echo ran > $J/ran", init={"prep": "echo up > $J/up; exec sleep 1000"})
    pods.wait_for("up")
    supervisor.terminate(pod, force)
    assert verdict(pods.end(pod)) == DELETED
    assert not (pods.shared / "ran").exists()


def test_deleting_right_after_launching(pods) -> None:
    """Halted within the second it was resumed: the pod ends, whatever it was doing just then."""
    for number in range(20):
        pod = pods.start("exec sleep 1000", grace=1.0)
        deadline = time.monotonic() + number * 0.002
        while time.monotonic() < deadline:
            pass
        supervisor.terminate(pod, force=bool(number % 2))
        assert verdict(pods.end(pod)) == DELETED


def test_deleted_before_it_was_launched(pods) -> None:
    """A runner that decided to start a pod and was killed: whoever deletes it wins over whoever comes to launch it."""
    pod = pods.make("echo ran > $J/ran")
    supervisor.terminate(pod)
    supervisor.launch(pod)
    assert verdict(pods.end(pod)) == DELETED
    assert not (pods.shared / "ran").exists()


def test_deleting_what_has_ended_changes_nothing(pods) -> None:
    """The exit code that retries depend on stays."""
    pod = pods.start("exit 3")
    seen = pods.end(pod)
    supervisor.terminate(pod, force=True)
    assert supervisor.observe(pod) == seen


def test_deleting_a_pod_whose_folder_is_gone(pods) -> None:
    """Two commands delete at once."""
    supervisor.terminate(pods.folder / "none")
    supervisor.cleanup(pods.folder / "none")
    assert supervisor.observe(pods.folder / "none") is None


def test_a_recycled_pid_is_not_signalled(pods) -> None:
    """After a supervisor's death its number may belong to the user's editor."""
    pod = pods.start("echo up > $J/up; exec sleep 1000")
    pods.wait_for("up")
    began = processes.stat(pods.pids(pod)["main"])
    os.kill(pods.pids(pod)["supervisor"], signal.SIGKILL)
    pods.await_(lambda: _ticks_since_boot() > began.start + 1, "the clock")  # no number comes back within one tick
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        for name in ("started", "state.json"):
            told = json.loads((pod / name).read_text())
            for who in ("supervisor", "first", "main"):
                if who in told:
                    told[who]["pid"] = bystander.pid
            (pod / name).write_text(json.dumps(told))
        supervisor.terminate(pod, force=True)
        assert verdict(pods.end(pod)) == DELETED
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def _ticks_since_boot() -> float:
    return float(Path("/proc/uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK")


def test_eight_launchers_run_it_once(pods) -> None:
    """Two runners may drive one job for a moment; a learner that ran twice would corrupt the job's files."""
    pod = pods.make("echo ran >> $J/ran; sleep 0.1")
    read, write = os.pipe()
    launchers = []
    for _ in range(8):
        launchers.append(os.fork())
        if launchers[-1] == 0:
            os.close(write)
            os.read(read, 1)
            for _ in range(5):
                supervisor.launch(pod)
            os._exit(0)
    os.close(read)
    os.close(write)
    assert [os.waitpid(pid, 0)[1] for pid in launchers] == [0] * 8
    assert pods.end(pod).phase == "Succeeded"
    supervisor.launch(pod)
    assert supervisor.observe(pod).phase == "Succeeded"
    assert (pods.shared / "ran").read_text() == "ran\n"


def test_a_pod_whose_supervisor_died_is_not_run_again(pods) -> None:
    """Its user code has run: only a new attempt, with a new pod, may run it again."""
    pod = pods.start("echo ran >> $J/ran; exec sleep 1000")
    pods.wait_for("ran")
    os.kill(pods.pids(pod)["supervisor"], signal.SIGKILL)
    supervisor.launch(pod)
    assert verdict(pods.end(pod)) == DELETED
    supervisor.launch(pod)
    assert (pods.shared / "ran").read_text() == "ran\n"


def test_pod_outlives_who_launched_it(pods) -> None:
    """`kill -9` of the runner, or closing the terminal, loses nothing: whoever looks next learns the exit code."""
    pod = pods.make("echo up > $J/up; until [ -e $J/go ]; do sleep 0.01; done; exit 9")
    program = (
        "import os, pathlib, signal, sys; from ffdl.engines.local import supervisor; "
        "supervisor.launch(pathlib.Path(sys.argv[1])); os.killpg(0, signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(pod)], start_new_session=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    pods.wait_for("up")
    (pods.shared / "go").touch()
    assert pods.end(pod).exit_code == 9


def test_nobody_below_holds_the_lock(pods) -> None:
    """A daemon of user code with the lock would look like a living supervisor for ever."""
    pod = pods.start("sleep 1000 & echo up > $J/up; exec sleep 1000")
    pods.wait_for("up")
    pids = pods.pids(pod)
    _await_sleep(pods, 2)
    holders = [p for p in pods.processes() if str(pod / "lock") in _open_files(p)]
    assert holders == [pids["supervisor"]]
    main = _open_files(pids["main"])
    assert not [name for name in main if str(pods.folder) in name]


def _await_sleep(pods, count: int) -> None:
    """Waits until user code is `count` times `sleep`, asleep: a shell still has open what it has just written to."""
    pods.await_(lambda: len(found := pods.marked()) == count and all(map(_asleep, found)), f"{count} times sleep")


def _asleep(pid: int) -> bool:
    named = Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    found = processes.stat(pid)
    return named and found is not None and found.state == "S"


def _open_files(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]


def test_supervisor_holds_nothing_of_the_runner(pods) -> None:
    """A runner's locks and sockets must end with it, though a pod it launched lives on."""
    held = os.open(pods.folder / "runner.lock", os.O_CREAT | os.O_RDWR)
    pod = pods.start("echo up > $J/up; exec sleep 1000")
    pods.wait_for("up")
    _await_sleep(pods, 1)
    os.close(held)
    for pid in pods.pids(pod).values():
        assert str(pods.folder / "runner.lock") not in _open_files(pid)


def test_cleanup_leaves_a_living_pod_alone(pods) -> None:
    """And may be called twice."""
    pod = pods.start("echo up > $J/up; sleep 1000", memory=256 << 20)
    pods.wait_for("up")
    supervisor.cleanup(pod)
    assert supervisor.observe(pod).phase == "Running"
    assert pods.cgroups() == [] or processes.stat(pods.pids(pod)["main"]) is not None
    supervisor.terminate(pod, force=True)
    pods.end(pod)
    supervisor.cleanup(pod)
    supervisor.cleanup(pod)
    assert pods.cgroups() == []


def test_after_a_reboot(pods) -> None:
    """Pids of before a reboot mean nothing; the pod counts as deleted and the job goes on with its next attempt."""
    pod = pods.start("echo up > $J/up; exec sleep 1000")
    pods.wait_for("up")
    os.kill(pods.pids(pod)["supervisor"], signal.SIGKILL)
    pods.end(pod)
    (pod / "result.json").unlink()
    told = json.loads((pod / "started").read_text())
    told["supervisor"] = {"pid": os.getpid(), "start": processes.stat(os.getpid()).start, "boot": "another"}
    (pod / "started").write_text(json.dumps(told))
    assert verdict(supervisor.observe(pod)) == DELETED


def test_what_it_keeps_is_for_its_user_alone(pods) -> None:
    """Other users of the machine read neither a pod's output nor its environment."""
    pod = pods.start("echo secret")
    pods.end(pod)
    for name in ("main.log", "started", "result.json", "supervisor.log"):
        assert Path(pod / name).stat().st_mode & 0o077 == 0
