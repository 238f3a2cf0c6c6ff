"""Logs: what a learner says can be read while it runs and for as long as its results are kept."""

from __future__ import annotations

import subprocess

from tests.behaviours.user import FFDL, User


def test_long_logs_are_printed_in_little_memory(user: User) -> None:
    """A chatty job's log is larger than a laptop's memory; looking at it must not take the machine down."""
    job = user.train(user.command("yes 0123456789012345678901234567890123456789 | head -c 40000000; echo end"))
    assert user.until_over(job).state == "COMPLETED"
    measured = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=-3, check=True)\n"
    measured += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    for extra in ([], ["-f"]):
        command = [str(FFDL.with_name("python")), "-c", measured, str(FFDL), "logs", job, *extra]
        done = subprocess.run(command, env=user.env, capture_output=True, text=True, check=True)
        assert int(done.stdout) < 64 << 10, f"{done.stdout} KiB"
