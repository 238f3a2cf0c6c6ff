"""Whoever goes away (the runner, the terminal, the machine), the job goes on; on any machine, for any user."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.local_user import LocalUser
from tests.behaviours.user import FFDL, GATED, PATIENCE, SHORT

NOBODY = 65534


def at_step(user: LocalUser, step: int) -> None:
    """Waits for a training step without asking the engine, which would take over from a dead runner."""

    def there() -> bool:
        files = user.home.glob("jobs/*/claims/job/job/logs/learner-1/evaluation-metrics.txt")
        return any(f'"value": "{step}"' in path.read_text() for path in files)

    user.wait_for(there, f"step {step}")


def starting(user: LocalUser) -> list[str]:
    """Runners that have not looked yet whether the job has one."""
    return [said for said in user.running() if "ffdl.engines.local.runner" in said and not said.startswith("ffdl-")]


def kill_the_runner(user: LocalUser) -> None:
    user.wait_for(lambda: not starting(user), "a single runner")  # a second one, on its way to leave, would take over
    assert user.kill("runner")
    user.wait_for(lambda: not user.pids("runner"), "the runner's death")


# --- whoever comes next -----------------------------------------------------------------------------------------------


def test_the_next_command_takes_over(user: LocalUser, short_model: bytes) -> None:
    """There is no server to watch: any `ffdl` command finds a job that lost its runner, and nothing runs twice."""
    job = user.train(user.job(env={**SHORT, **GATED}))
    at_step(user, 10)
    before = user.pids("learner")
    kill_the_runner(user)
    assert user.pids("learner") == before, "the learner trains on by itself"
    user.ffdl("list")
    user.wait_for(lambda: len(user.pids("runner")) == 1, "a runner")
    assert user.pids("learner") == before
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.engine.status(job).attempts == 1
    assert user.model(job) == short_model


def test_a_job_ends_without_a_runner_and_is_recorded(user: LocalUser, short_model: bytes) -> None:
    """The exit code of a learner that ended while nobody watched is not lost."""
    job = user.train(user.job(env={**SHORT, **GATED}))
    at_step(user, 5)
    kill_the_runner(user)
    user.open_gate(job)
    user.wait_for(lambda: not user.pids("learner"), "the learner's end")
    assert user.ffdl("wait", job).returncode == 0
    assert user.engine.status(job).attempts == 1
    assert user.model(job) == short_model


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_engine_as_a_service(user: LocalUser, number: signal.Signals) -> None:
    """An operator runs `ffdl engine` under an init system: it takes over by itself, and stops when told to, at once."""
    job = user.train(user.command("sleep infinity", halt_grace="1s"))
    service = subprocess.Popen([str(FFDL), "engine"], env=user.env, stderr=subprocess.PIPE, text=True)
    assert service.stderr is not None
    try:
        assert "watches over" in service.stderr.readline()
        user.wait_for(lambda: bool(user.pids("runner")), "the runner")
        for _ in range(2):
            kill_the_runner(user)
            assert service.stderr.readline() == f"took over {job}\n"
            user.wait_for(lambda: bool(user.pids("runner")), "a runner")
        service.send_signal(number)
        service.wait(PATIENCE)
        assert "Traceback" not in service.stderr.read()
    finally:
        service.kill()
        service.wait()
        service.stderr.close()
    assert user.ffdl("status", job).stdout.strip() in ("PENDING", "DOWNLOADING", "PROCESSING")
    user.ffdl("stop", job)


def test_after_a_reboot(user: LocalUser, short_model: bytes) -> None:
    """The power fails: the next command, days later, starts new attempts from the last checkpoint."""
    job = user.train(user.job(env={**SHORT, **GATED}, checkpoint={"interval": "5 steps"}))
    for step in (12, 30):
        at_step(user, step)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # all at one moment: none sees another die
            for pid in user.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        user.wait_for(lambda: not user.processes(), "the end of everything")
        time.sleep(0.2)
        assert not user.processes(), "nothing comes back by itself"
        assert job in user.ffdl("list").stdout
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert user.engine.status(job).attempts == 3
    assert user.model(job) == short_model
    restored = re.findall(r"restored at (\w+)", user.ffdl("logs", job).stdout)
    assert len(restored) == 3
    assert restored.count("None") == 1


def test_a_job_keeps_the_settings_it_was_submitted_with(user: LocalUser) -> None:
    """Proxies and patience are the submitter's, whichever terminal, or service, happens to take the job over."""
    user.env["FFDL_RETRY_SECONDS"] = "1"
    wait = f'until [ -e "{user.folder / "gate"}" ]; do sleep 0.05; done'
    job = user.train(user.command(wait))
    user.until(job, lambda status: status.state == "PROCESSING")
    kill_the_runner(user)
    del user.env["FFDL_RETRY_SECONDS"]
    user.ffdl("list")
    (user.folder / "gate").touch()
    assert user.until_over(job).state == "COMPLETED", user.story()
    (pod,) = user.home.glob("jobs/*/pods/*-store-results-*/pod.json")
    assert json.loads(pod.read_text())["containers"][0]["env"].get("FFDL_RETRY_SECONDS") == "1"


# --- the clock --------------------------------------------------------------------------------------------------------


def set_back(job: Path, hours: int) -> None:
    """Makes a job's files say that it ran while the clock was `hours` ahead of where it is now."""

    def later(match: re.Match[str]) -> str:
        moment = datetime.fromisoformat(match.group()) + timedelta(hours=hours)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    status = job / "control" / "status.json"
    status.write_text(re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", later, status.read_text()))
    for result in job.glob("pods/*/result.json"):
        values = json.loads(result.read_text())
        for name in ("started_at", "finished_at"):
            values[name] = values[name] and values[name] + 3600 * hours
        result.write_text(json.dumps(values))
    ahead = (job / "created").stat().st_mtime_ns + 3600 * hours * 10**9
    os.utime(job / "created", ns=(ahead, ahead))


def test_a_clock_set_back(user: LocalUser, short_model: bytes) -> None:
    """A laptop's clock was wrong when a job began: what is newest stays newest, and a halted job goes on at once."""
    first = user.train(user.job("first", env={**SHORT, **GATED}))
    at_step(user, 20)
    user.ffdl("halt", first)
    user.until_at_rest()  # then nobody but us changes the job's files
    set_back(user.home / "jobs" / first, 5)
    second = user.train(user.command("true", "second"))
    third = user.train(user.command("true", "third"))
    assert user.ffdl("list", "-o", "name").stdout.split() == [third, second, first]
    assert user.ffdl("wait", "@latest").returncode == 0
    user.ffdl("resume", first)
    user.open_gate(first)
    assert user.until_over(first).state == "COMPLETED", user.story()
    assert user.model(first) == short_model
    assert user.ffdl("list").stdout.count("COMPLETED") >= 1
    assert user.ffdl("show", first).returncode == 0


# --- any machine, any user --------------------------------------------------------------------------------------------


def an_eventful_life(user: LocalUser, folder: Path, *victims: str) -> str:
    """Trains, halts, resumes, kills each of the victims. Returns the id of the job, a GATED one, once it is over."""
    job = user.train(folder)
    user.until_step(job, 12)
    user.ffdl("halt", job)
    assert user.ffdl("status", job).stdout.strip() == "HALTED"
    user.until_at_rest()
    user.ffdl("resume", job)
    for step, victim in zip((25, 40), victims, strict=False):
        user.until_step(job, step)
        user.wait_for(lambda victim=victim: user.kill(victim), victim)  # where it was halted late, it is to begin yet
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    return job


def here(folder: Path) -> dict[str, Any]:
    """A data store: `folder`/data of this machine."""
    connection = {"type": "host_mount", "path": str(folder)}
    return {"id": "x", "type": "mount_volume", "training_data": {"container": "data"}, "connection": connection}


def use_data(script: Path) -> None:
    """Makes a script look whether its data is there."""
    look = 'import os\n\nwith open(os.environ["DATA_DIR"] + "/x") as stream:\n    assert stream.read() == "data"\n'
    script.write_text(look + script.read_text())


def test_without_namespaces(user: LocalUser, short_model: bytes, setting: Callable[[str, str], None]) -> None:
    """A container often gives none: a job halts, resumes, survives kills and leaves nothing there too."""
    setting("FFDL_ISOLATION", "none")
    (user.folder / "stores" / "data").mkdir(parents=True)
    (user.folder / "stores" / "data" / "x").write_text("data")
    folder = user.job(env={**SHORT, **GATED}, data_stores=[here(user.folder / "stores")])
    use_data(folder / "train.py")
    job = an_eventful_life(user, folder, "learner", "supervisor")
    assert user.model(job) == short_model
    daemon = f"ffdl-test-daemon-{uuid.uuid4().hex}"  # tests that run beside this one have theirs
    left = user.train(user.command(f"setsid bash -c 'exec -a {daemon} sleep 1000' & sleep 0.2", "daemon"))
    assert user.until_over(left).state == "COMPLETED", user.story()
    assert subprocess.run(["pgrep", "-f", daemon], capture_output=True).returncode == 1


def test_odd_folders(odd_user: LocalUser, short_model: bytes) -> None:
    """Home folders have spaces, umlauts, quotes."""
    user = odd_user
    job = an_eventful_life(user, user.job("my job ž", env={**SHORT, **GATED}), "learner")
    assert user.model(job) == short_model
    user.ffdl("download", job, "-d", "my results ž")
    found = user.folder / "my results ž" / f"{job}-results" / "model.npy"
    assert found.read_bytes() == short_model


class Nobody(LocalUser):
    """A user without any rights. Looked at through the command alone: the engine in this process would run as root."""

    prefix: tuple[str, ...] = ()

    def ffdl(
        self, *arguments: str, code: int | None = 0, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, str(FFDL), *arguments]
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=timeout)
        said = f"ffdl {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, f"{said}\nexit {done.returncode}, wanted {code}\n{self.story()}"
        assert "Traceback" not in done.stderr, said
        self.jobs.update(re.findall(r"^Model ID: (\S+)$", done.stdout, re.MULTILINE))
        return done


def without_rights() -> tuple[str, ...]:
    """What to put before a command so that it has none: another user, or, where that one can't read us, one in name."""
    other = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    mapped = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    for prefix in (other, mapped) if os.geteuid() == 0 else (mapped,):
        code = (
            "import ffdl.learner, os; assert os.geteuid()"  # by a shell: setpriv itself keeps rights until it is gone
        )
        look = [*prefix, "sh", "-c", '"$0" -c "$1"', sys.executable, code]
        with contextlib.suppress(FileNotFoundError):
            if not subprocess.run(look, capture_output=True).returncode:
                return prefix
    pytest.skip("needs setpriv and a Python that others may read, or unshare and user namespaces")


@pytest.fixture
def nobody() -> Iterator[Nobody]:
    folder = Path(tempfile.mkdtemp(prefix="ffdl-nobody-"))
    try:
        someone = Nobody(folder)
        someone.prefix = without_rights()
        someone.env = {**someone.env, "HOME": str(folder), "USER": "nobody"}
        yield someone
        someone.wait_for(lambda: not someone.processes(), f"the end of {someone.processes()}")
        assert str(folder) not in Path("/proc/self/mounts").read_text()
        assert someone.cgroups() == []
        assert not list((someone.home / "jobs").iterdir())
        assert subprocess.run([*someone.prefix, "rm", "-rf", *folder.iterdir()]).returncode == 0, "they can remove all"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_without_any_rights(nobody: Nobody, short_model: bytes) -> None:
    """Most people are not root on the machine they train on: everything works for them, data folders included."""
    user = nobody
    data = user.folder / "stores" / "data"
    data.mkdir(parents=True)
    (data / "x").write_text("data")
    folder = user.job(env={**SHORT, **GATED}, data_stores=[here(user.folder / "stores")])
    use_data(folder / "train.py")
    if user.prefix[0] == "setpriv":
        for path in (user.folder, *user.folder.rglob("*")):
            shutil.chown(path, NOBODY, NOBODY)
    job = user.train(folder)
    at_step(user, 20)
    user.ffdl("halt", job)
    assert user.ffdl("status", job).stdout.strip() == "HALTED"
    user.until_at_rest()
    user.ffdl("resume", job)
    at_step(user, 40)
    assert user.kill("learner")
    user.open_gate(job)
    assert user.ffdl("wait", job).returncode == 0
    assert user.model(job) == short_model
    assert (data / "x").read_text() == "data"
    user.ffdl("delete", job, "-y")
