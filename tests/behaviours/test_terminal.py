"""A job is none of the terminal's: closing it, or Ctrl-C, ends the looking on."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import termios

from tests.behaviours.user import FFDL, GATE, PATIENCE, SHORT, User


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, user: User, *arguments: str) -> None:
        self.master, slave = pty.openpty()

        def own() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup

        self.process = subprocess.Popen(
            [str(FFDL), *arguments],
            env=user.env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=own,
        )
        os.close(slave)
        self.said = ""

    def read_until(self, words: str) -> str:
        while words not in self.said:
            try:
                piece = os.read(self.master, 65536)
            except OSError:
                piece = b""
            assert piece, f"{words!r} was not said: {self.said}"
            self.said += piece.decode(errors="replace")
        return self.said

    def close(self) -> None:
        os.close(self.master)


def test_the_terminal_closes(user: User, short_model: bytes) -> None:
    """A laptop is shut while following: the job is none of the terminal's."""
    terminal = Terminal(user, "train", str(user.job(env=SHORT) / "manifest.yml"), "--follow")
    terminal.read_until("restored at None")
    job = re.findall(r"training-\w+", terminal.said)[0]
    user.jobs.add(job)
    terminal.close()
    terminal.process.wait(PATIENCE)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.engine.status(job).attempts == 1
    assert user.model(job) == short_model


def test_ctrl_c_while_following(user: User) -> None:
    """Ctrl-C ends the looking on, not the job, and says so."""
    folder = user.command(f"echo working; {GATE}")
    for arguments in (
        ["train", str(folder / "manifest.yml"), "--follow"],
        ["logs", "-f", "@latest"],
        ["wait", "@latest"],
    ):
        terminal = Terminal(user, *arguments)
        terminal.read_until("PROCESSING" if "wait" in arguments else "working")
        os.write(terminal.master, b"\x03")
        assert terminal.process.wait(PATIENCE) == 130
        assert "goes on without you" in terminal.read_until("goes on without you")
        assert "Traceback" not in terminal.said
        terminal.close()
    (job,) = user.engine.ids()
    user.jobs.add(job)
    assert user.ffdl("status", job).stdout.strip() == "PROCESSING"
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
