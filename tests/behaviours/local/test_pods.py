"""What a pod of this machine sees, and what it is run with."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.behaviours.local_user import LocalUser


def test_a_missing_framework_is_said_at_submit(user: LocalUser) -> None:
    """Not an hour later in a log."""
    folder = user.job(framework={"name": "caffe2", "version": "latest", "command": "python x.py"})
    done = user.ffdl("train", str(folder / "manifest.yml"), code=2)
    assert "caffe2" in done.stderr
    assert "--python" in done.stderr


def test_a_learner_sees_nothing_of_the_engines_own_files(user: LocalUser) -> None:
    """Another job's code, or a store's credentials, are not for a script to read, though the same user runs both."""
    other = user.train(user.command("true", "other"))
    assert user.until_over(other).state == "COMPLETED"
    look = f"find {user.home}/jobs {user.home}/claims {user.home}/secrets -type f 2>/dev/null | wc -l"
    job = user.train(user.command(look))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.ffdl("logs", job).stdout.split() == ["0"]


@pytest.mark.parametrize("chosen", ["by --python", "active"])
def test_python_is_the_users_own(user: LocalUser, chosen: str) -> None:
    """A user trains with the packages of their own environment, not with those that ffdl is installed beside."""
    venv = user.folder / "their environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next(venv.glob("lib/python*/site-packages"))
    (packages / "only_here.py").write_text("SAYS = 'theirs'\n")
    text = """
    import os, sys, only_here
    from ffdl import learner
    with open(os.environ["RESULT_DIR"] + "/said", "w") as stream:
        stream.write(f"{only_here.SAYS} {sys.prefix} {os.environ['VIRTUAL_ENV']}")
    with learner.session() as job:
        job.step(1, of=1)
    """
    folder = user.command("python script.py")
    (folder / "script.py").write_text(textwrap.dedent(text))
    arguments = ["--python", str(venv / "bin" / "python")] if chosen == "by --python" else []
    if chosen == "active":
        user.env |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:{user.env['PATH']}"}
    job = user.train(folder, *arguments)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (user.results(job) / "said").read_text() == f"theirs {venv} {venv}"
