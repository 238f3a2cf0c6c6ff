"""Memory limits, by cgroup and by sampling."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from ffdl.engines.local import cgroup, supervisor

HOG = f"{sys.executable} -S -c \"x = bytearray(300 << 20); print('held', flush=True); import time; time.sleep(1000)\""
KILLED = ("Failed", 137, "main: OOMKilled (exit code 137)")


def test_main_out_of_memory(pods, accounting: str) -> None:
    """Out of memory is told apart from any other 137: trying again would hit the same wall."""
    seen = pods.run(f"exec {HOG}", memory=96 << 20)
    assert (seen.phase, seen.exit_code, seen.message) == KILLED
    assert pods.cgroups() == []


def test_memory_of_children_counts(pods, accounting: str) -> None:
    """Data-loader workers are part of the job: their memory counts. By sampling the whole pod ends, main included."""
    pod = pods.start(f"{HOG} & wait; echo main lives > $J/lives; exit 5", memory=96 << 20)
    seen = pods.end(pod)
    if accounting == "sampled":
        assert (seen.phase, seen.exit_code, seen.message) == KILLED
    else:  # version 1 kills the worker alone and main says how it ends; version 2 all of it
        assert seen.message in ("main: Error (exit code 5)", KILLED[2])


def test_within_the_limit(pods, accounting: str) -> None:
    """Memory that worker processes share counts once: four workers on one array don't make it five arrays."""
    script = (
        "import os, time; x = b'x' * (60 << 20)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0: time.sleep(1); os._exit(sum(x[::4096]) == 0)\n"
        "assert [os.wait()[1] for _ in range(4)] == [0] * 4"
    )
    assert pods.run([sys.executable, "-S", "-c", script], memory=160 << 20).phase == "Succeeded"


def test_killed_by_hand_is_not_out_of_memory(pods, accounting: str) -> None:
    """137 alone says nothing: an operator's kill -9 is retried, running out of memory is not."""
    assert pods.run("kill -9 $$", memory=96 << 20).message == "main: Error (exit code 137)"


def test_agent_can_read_its_own_counters(pods, accounting: str) -> None:
    """The agent tells out-of-memory from a crash by the counters of the cgroup that it finds in the usual place."""
    if accounting == "sampled":
        pytest.skip("there is no cgroup then")
    version_1 = "cat /sys/fs/cgroup/memory$(grep :memory: /proc/self/cgroup | cut -d: -f3)/memory.oom_control"
    version_2 = "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.events"
    planned = cgroup.plan("probe")
    pod = pods.start(version_1 if planned.version == 1 else version_2, memory=96 << 20)
    assert pods.end(pod).phase == "Succeeded"
    assert "oom_kill 0" in pods.log(pod)


def test_sampling_costs_next_to_nothing(pods, accounting: str) -> None:
    """Where there is no cgroup, looking must not take the CPU that the job was promised."""
    if accounting == "cgroup":
        pytest.skip("nothing is sampled then")
    pod = pods.start("echo up > $J/up; exec sleep 1000", memory=96 << 20)
    pods.wait_for("up")
    pid = pods.pids(pod)["supervisor"]

    def used() -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    before, began = used(), time.monotonic()
    time.sleep(1.0)
    assert used() - before <= 0.1 * (time.monotonic() - began)
    assert supervisor.observe(pod).phase == "Running"


OWN = "4:memory:/parent/own\n1:cpu,cpuacct:/\n0::/user.slice/a.scope\n"
MOUNTS = (
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "41 31 0:38 /user.slice /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
)


def test_finding_this_process_in_the_hierarchies() -> None:
    """Machines mount cgroups in many ways, containers show a part of them; the limit must land on the right one."""
    own, mounts = cgroup._own_groups(OWN), cgroup._hierarchies(MOUNTS)
    assert own == {"memory": "/parent/own", "cpu": "/", "cpuacct": "/", "": "/user.slice/a.scope"}
    assert mounts == {"memory": ("/sys/fs/cgroup/memory", "/"), "": ("/sys/fs/cgroup/unified", "/user.slice")}
    assert cgroup._upwards(mounts["memory"], own["memory"]) == [
        "/sys/fs/cgroup/memory/parent/own",
        "/sys/fs/cgroup/memory/parent",
        "/sys/fs/cgroup/memory",
    ]
    assert cgroup._upwards(mounts[""], own[""]) == ["/sys/fs/cgroup/unified/a.scope", "/sys/fs/cgroup/unified"]
    assert cgroup._upwards(("/sys/fs/cgroup", "/elsewhere"), "/") == ["/sys/fs/cgroup"]


def test_counters_of_version_2(tmp_path: Path) -> None:
    """The count of kills is one line among others; a missing file means none."""
    group = cgroup.Cgroup(str(tmp_path), 2)
    assert group.oom_kills() == 0
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 1\n")
    assert group.oom_kills() == 3
