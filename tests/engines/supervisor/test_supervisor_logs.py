"""A pod's output in its log."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")


def test_each_line_has_its_time(pods) -> None:
    """`logs --since` and the merging of several learners' lines go by these times."""
    before = time.time()
    pod = pods.start("echo out; echo err >&2; echo; printf 'no end'", init={"prep": "echo preparing"})
    pods.end(pod)
    lines = (pod / "main.log").read_bytes().splitlines()
    assert [STAMP.sub(b"", line, count=1) for line in lines] == [b"out", b"err", b"", b"no end"]
    for line in lines:
        said = datetime.strptime(line.split()[0].decode(), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        assert before - 0.001 <= said.timestamp() <= time.time()
    assert pods.log(pod, "init-prep.log") == "preparing\n"


def test_lines_arrive_at_once(pods) -> None:
    """Who follows a log sees a line when it is printed, not when the next comes or a buffer is full."""
    pod = pods.start("printf 'half'; echo up > $J/up; sleep 1000")
    pods.wait_for("up")
    pods.await_(lambda: (pod / "main.log").read_bytes()[28:] == b"half", "half a line")


def test_bytes_are_kept(pods) -> None:
    """Progress bars, colours and output that is not text come through as they are."""
    pod = pods.start(r"printf '\000\377\r\033[31m\r\n\303\050\n'")
    pods.end(pod)
    raw = (pod / "main.log").read_bytes()
    assert STAMP.sub(b"", raw) == b"\x00\xff\r\x1b[31m\r\n\xc3\x28\n"


def kilobytes(pid: int, what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1))


def test_floods_and_endless_lines_take_no_memory(pods) -> None:
    """A script that prints 100 MB must not cost the machine 100 MB of memory, nor the end of its output."""
    flood = "yes $(head -c 999 /dev/zero | tr '\\0' x) | head -c 100000000; head -c 30000000 /dev/zero; echo; echo last"
    pod = pods.start(f"echo up > $J/up; {flood}; echo done > $J/done; until [ -e $J/go ]; do sleep 0.01; done")
    pods.wait_for("done")
    peak = kilobytes(pods.pids(pod)["supervisor"], "VmHWM")
    inherited = kilobytes(os.getpid(), "VmHWM")  # it was forked from this process
    assert peak < inherited + 32 * 1024
    private = Path(f"/proc/{pods.pids(pod)['supervisor']}/smaps_rollup").read_text()
    assert int(re.search(r"Private_Dirty:\s+(\d+) kB", private).group(1)) < 16 * 1024
    (pods.shared / "go").touch()
    pods.end(pod)
    log = (pod / "main.log").read_bytes()
    assert log.endswith(b" last\n")
    assert (log.count(b"\n"), log.count(b"\0")) == (100_002, 30_000_000)
