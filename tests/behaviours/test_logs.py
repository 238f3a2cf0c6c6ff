"""Logs: what a learner says can be read while it runs and for as long as its results are kept."""

from __future__ import annotations

import subprocess

from tests.behaviours.user import FFDL, User

LINE = "0123456789012345678901234567890123456789"
LINES = 1_000_000


def test_long_logs_are_printed_whole_in_little_memory(user: User) -> None:
    """A chatty job's log is larger than a laptop's memory, and than what a node keeps of a pod's output."""
    job = user.train(user.command(f"yes {LINE} | head -n {LINES - 1}; echo end"))
    assert user.until_over(job).state == "COMPLETED"
    measured = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], 'w'), check=True)\n"
    )
    measured += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    out = user.folder / "out"
    for extra in ([], ["-f"]):
        command = [str(FFDL.with_name("python")), "-c", measured, str(out), str(FFDL), "logs", job, *extra]
        done = subprocess.run(command, env=user.env, capture_output=True, text=True, check=True)
        assert int(done.stdout) < 64 << 10, f"{done.stdout} KiB"
        lines = out.read_text().splitlines()
        assert (len(lines), lines[0], lines[-1]) == (LINES, LINE, "end")
    assert user.ffdl("logs", job, "--tail", "2").stdout.splitlines() == [LINE, "end"]
