"""A user's day with jobs that really run on the local engine: submit, follow, halt, resume, look, fetch, delete."""

import json
import os
import signal
import stat
import time
import zipfile

import pytest
import yaml

from ffdl.engines.local.engine import LocalEngine
from tests.cli.shell import PATIENCE, Terminal

LONG = "for i in $(seq 6000); do echo line $i; sleep 0.1; done"  # ten minutes, unless it is ended


@pytest.fixture
def runner(shell):
    """The shell; its jobs are deleted afterwards, so that none outlives the test."""
    yield shell
    shell.ffdl("delete", "--all", "-y")


def write_job(shell, command, name="tiny", **keys):
    """A manifest for `command`; returns its path."""
    folder = shell.folder / name
    folder.mkdir()
    manifest = {"name": name, "learners": 1, "cpus": 0.5, "memory": "256MB", "halt_grace": "2s", **keys}
    manifest["framework"] = {"name": "custom", "version": "debian:bookworm", "command": command}
    (folder / "manifest.yml").write_text(yaml.safe_dump(manifest))
    return str(folder / "manifest.yml")


def spirals(shell, steps):
    """The job that `ffdl init` makes, with fewer steps; its last one waits for the file `gate` in the user's folder."""
    shell.ffdl("init", "spirals")
    script = shell.folder / "spirals" / "train.py"
    text = script.read_text()
    loop = '        while state["step"] < STEPS:\n'
    wait = f'''            while state["step"] == STEPS - 1 and not os.path.exists("{shell.folder / "gate"}"):
                time.sleep(0.05)
                job.step(state["step"], of=STEPS, state=state)  # where a halt is heard of
'''
    changes = {"import random\n": "import random\nimport time\n", "= 4000": f"= {steps}", loop: loop + wait}
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    script.write_text(text)
    return "spirals/manifest.yml"


def submit(shell, *arguments):
    said = shell.ffdl("train", *arguments).stdout
    assert said.startswith("Model ID: training-")
    return said.split()[-1]


def until(shell, job, *states):
    """Waits until a job is in one of the states."""
    for status in LocalEngine(shell.home).watch(job, PATIENCE):
        if status.state in states:
            return status
    raise AssertionError(f"{job} never was {states}: {status}")


def test_a_followed_job_is_seen_to_its_end(runner):
    """The lines as the script wrote them, on stdout; the id first; how it ended on stderr and in the code."""
    done = runner.ffdl("train", write_job(runner, "echo hello; echo ' two  spaces' >&2"), "--follow")
    first, *lines = done.stdout.splitlines()
    job = first.removeprefix("Model ID: ")
    assert sorted(lines) == [" two  spaces", "hello"]
    assert f"{job} COMPLETED after" in done.stderr
    assert runner.ffdl("status", job).stdout == "COMPLETED\n"


def test_without_follow_the_id_is_all_of_stdout(runner):
    """`id=$(ffdl train manifest.yml | cut -d' ' -f3)`; people get the next commands on stderr."""
    done = runner.ffdl("train", write_job(runner, "true"))
    job = done.stdout.removeprefix("Model ID: ").rstrip("\n")
    assert done.stdout == f"Model ID: {job}\n"
    assert f"ffdl logs -f {job}" in done.stderr
    assert "packed" in done.stderr
    done = runner.ffdl("wait", job)
    assert f"{job} COMPLETED" in done.stderr
    assert done.stdout == ""


def test_a_failed_job_is_code_1_with_its_reason(runner):
    """A pipeline must stop, and a person must read why without looking further."""
    done = runner.ffdl("train", write_job(runner, "echo before; exit 3"), "--wait", code=1)
    assert "FAILED after" in done.stderr
    assert done.stderr.rstrip().endswith("learner 1 exited with code 3")
    job = done.stdout.split()[-1]
    assert runner.ffdl("logs", job).stdout == "before\n"
    runner.ffdl("wait", job, code=1)
    (status,) = json.loads(runner.ffdl("list", "-o", "json").stdout)
    assert (status["state"], status["exit_code"], status["error_code"]) == ("FAILED", 3, "C201")


def test_lines_of_several_learners_say_whose_they_are(runner):
    """Mixed lines of eight learners can't be read without."""
    manifest = write_job(runner, "echo I am $LEARNER_ID", learners=2, distribution={"kind": "none"}, completion="all")
    done = runner.ffdl("train", manifest, "--follow")
    assert sorted(done.stdout.splitlines()[1:]) == ["learner-1 | I am 1", "learner-2 | I am 2"]
    assert runner.ffdl("logs", "@latest", "--learner", "2").stdout == "I am 2\n"
    assert "has no learner 3" in runner.fails("logs", "@latest", "--learner", "3")


def test_a_follower_hears_what_the_job_waits_for(runner):
    """Else one looks at an empty screen, and the reason stands in a list that one does not see."""
    runner.env["FFDL_MACHINE"] = "cpus=1"
    first = runner.ffdl("train", write_job(runner, LONG, name="first", cpus=1)).stdout.split()[-1]
    follower = runner.start("train", write_job(runner, "echo hello", name="second", cpus=1), "--follow")
    while "QUEUED: needs 1 CPUs, 0 free" not in (line := follower.stderr.readline()):
        assert line, "it ended without a word"
    runner.ffdl("stop", first)
    said, _ = follower.communicate(timeout=PATIENCE)
    assert said.splitlines()[-1] == "hello"
    assert follower.returncode == 0


def test_a_halt_without_a_checkpoint_says_so(runner):
    """To let it go on is to begin anew: who reads that may wait with the halt the next time."""
    job = runner.ffdl("train", write_job(runner, LONG)).stdout.split()[-1]
    follower = runner.start("logs", job, "--follow")
    assert follower.stdout.readline() == "line 1\n"
    for verb, code in ("halt", 0), ("wait", 3):
        assert f"HALTED, without a checkpoint: unless its script saves by itself, `ffdl resume {job}` begins anew" in (
            runner.ffdl(verb, job, code=code).stderr
        )
    assert "--checkpoint" not in runner.ffdl("show", job).stdout
    follower.communicate(timeout=PATIENCE)


def test_a_job_that_is_being_stopped_is_neither_halted_nor_resumed(runner):
    """It would be promised that it goes on."""
    deaf = "trap '' TERM; touch \"$JOB_STATE_DIR/begun\"; " + LONG
    job = runner.ffdl("train", write_job(runner, deaf, halt_grace="20s")).stdout.split()[-1]
    deadline = time.monotonic() + PATIENCE
    while not list((runner.home / "jobs" / job).rglob("begun")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    runner.ffdl("stop", job)
    for verb in ("halt", "resume"):
        assert runner.fails(verb, job) == f"{job} is being stopped: there is nothing to {verb}"
    assert "is being stopped" in runner.ffdl("list").stdout


def test_logs_of_what_is_not_there_are_not_taken_for_silence(runner):
    job = runner.ffdl("train", write_job(runner, "echo hello"), "--wait").stdout.split()[-1]
    for option in ("--step", "nostep"), ("--attempt", "9"):
        done = runner.ffdl("logs", job, *option)
        assert done.stdout == ""
        assert "no line is of that step or attempt; steps of" in done.stderr
        assert "learner-1" in done.stderr


def test_what_can_not_be_fetched_is_told_why(runner):
    job = runner.ffdl("train", write_job(runner, "echo hello"), "--wait").stdout.split()[-1]
    why = runner.fails("download", job, "--trainedmodel", code=4)
    assert why.endswith(f"no trainedmodel of {job}: its script has written nothing into RESULT_DIR")
    (runner.folder / "file").touch()
    assert runner.fails("download", job, "-d", "file") == "file is no folder; name one, or a new one, with -d"


def test_a_python_that_is_none_is_refused(runner):
    """Also where the framework needs no module of it."""
    manifest = write_job(runner, "echo hello")
    assert runner.fails("train", manifest, "--python", "/nope").startswith("/nope can't be run")
    assert runner.fails("train", manifest, "--python", "/bin/ls").startswith("/bin/ls is no Python")


def test_logs_can_be_narrowed(runner):
    """The last lines, one attempt, another step."""
    job = submit(runner, write_job(runner, "seq 100"))
    runner.ffdl("wait", job)
    assert runner.ffdl("logs", job, "--tail", "2").stdout == "99\n100\n"
    assert runner.ffdl("logs", job, "--attempt", "2").stdout == ""
    assert runner.ffdl("logs", job, "--since", "1h", "--tail", "1").stdout == "100\n"
    assert "100\n" not in runner.ffdl("logs", job, "--step", "download").stdout


def test_interrupting_the_following_leaves_the_job_running_and_says_so(runner):
    """Ctrl-C is how people stop looking, not how they stop training."""
    manifest = write_job(runner, LONG)
    with Terminal(runner, "train", manifest, "--follow") as screen:
        screen.until("line 2")
        screen.type("\x03")
        shown, code = screen.end()
    job = next(word for word in shown.split() if word.startswith("training-"))
    assert code == 130
    assert f"{job} goes on without you: `ffdl logs -f {job}` follows it again" in shown
    seen = len(runner.ffdl("logs", job).stdout.splitlines())
    process = runner.start("logs", "-f", job)
    for _ in range(seen + 3):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "goes on without you" in said
    assert runner.ffdl("status", job).stdout == "PROCESSING\n"


def test_halt_is_seen_by_who_waits_and_resume_goes_on(runner):
    """A script that waits learns that its job was halted: neither fine nor failed."""
    job = submit(runner, spirals(runner, 2000))
    waiting, following = runner.start("wait", job), runner.start("logs", "-f", job)
    assert following.stdout.readline() == "begins at step 0\n"
    for status in LocalEngine(runner.home).watch(job, PATIENCE):
        if status.step:
            break
    done = runner.ffdl("halt", job)
    assert "is HALTED at step" in done.stderr
    assert "ffdl resume" in done.stderr
    for process in (waiting, following):
        assert "is HALTED at step" in process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 3
    assert runner.ffdl("status", job).stdout == "HALTED\n"
    assert "ffdl resume" in runner.ffdl("show", job).stderr
    runner.ffdl("wait", job, code=3)
    (runner.folder / "gate").touch()
    runner.ffdl("resume", job)
    runner.ffdl("wait", job)
    output = runner.ffdl("logs", job).stdout
    assert output.count("begins at step") == 2
    assert output.count("begins at step 0\n") == 1
    assert output.endswith("trained: accuracy 1.00\n")
    status = json.loads(runner.ffdl("show", job, "-o", "json").stdout)
    assert (status["attempts"], status["progress"]) == (2, 1.0)
    metrics = [json.loads(line) for line in runner.ffdl("metrics", job, "-o", "json").stdout.splitlines()]
    assert metrics
    assert "loss" in runner.ffdl("metrics", job).stdout
    folder = runner.ffdl("download", job, "-d", "fetched").stdout.rstrip("\n")
    assert "model.json" in os.listdir(runner.folder / folder)


def test_what_is_wrong_for_a_jobs_state_is_refused(runner):
    """A mistaken `resume` of a finished job must not look as if it worked."""
    job = submit(runner, write_job(runner, "true"))
    runner.ffdl("wait", job)
    for verb in ("halt", "resume", "stop"):
        assert f"nothing to {verb}" in runner.fails(verb, job)


def test_a_stopped_job_ends_and_says_so(runner):
    """Stopped is not crashed."""
    job = submit(runner, write_job(runner, LONG))
    until(runner, job, "PROCESSING")
    runner.ffdl("stop", job)
    assert "stopped" in runner.ffdl("wait", job, code=1).stderr


def test_a_job_runs_again_as_a_new_one(runner):
    """The same Workflow and code, without the files that it came from."""
    manifest = write_job(runner, "cat words")
    words = runner.folder / "tiny" / "words"
    words.write_text("as submitted\n")
    first = submit(runner, manifest)
    runner.ffdl("wait", first)
    words.unlink()
    done = runner.ffdl("resubmit", first, "--follow")
    second = done.stdout.split()[2]
    assert second != first
    assert done.stdout.splitlines()[1:] == ["as submitted"]
    assert runner.ffdl("list", "-o", "name").stdout.split() == [second, first]


def test_the_code_comes_back_as_it_was_sent(runner):
    """What ran can be looked at, long after the folder has changed."""
    manifest = write_job(runner, "./run.sh")
    script = runner.folder / "tiny" / "run.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    done = runner.ffdl("train", manifest, "--follow")
    assert done.stdout.splitlines()[1:] == ["ran"]
    path = runner.folder / runner.ffdl("download", "@latest", "--definition", "-d", "x").stdout.rstrip("\n")
    with zipfile.ZipFile(path) as archive:
        assert archive.read("run.sh") == script.read_bytes()
        assert stat.S_IMODE(archive.getinfo("run.sh").external_attr >> 16) == 0o755


def test_events_tell_what_happened(runner):
    """Where a job failed, in order, for people and for scripts."""
    job = submit(runner, write_job(runner, "exit 3"))
    runner.ffdl("wait", job, code=1)
    events = json.loads(runner.ffdl("events", job, "-o", "json").stdout)
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert any(event["kind"] == "Warning" and "exit code 3" in event["message"] for event in events)
    assert runner.ffdl("events", job).stdout.startswith("TIME ")


def test_delete_asks_at_a_terminal_only(runner):
    """A slip of the finger must not cost a job, and a script must not hang at a question."""
    job = submit(runner, write_job(runner, LONG))
    assert "--all needs -y" in runner.fails("delete", "--all")
    assert "give the ids of jobs, or --all" in runner.fails("delete")
    shown, code = runner.terminal("delete", job, keys="n\n")
    assert code == 0
    assert "1 not finished, results stay" in shown
    assert "nothing was deleted" in shown
    shown, code = runner.terminal("delete", job, keys="y\n")
    assert (code, f"{job} is deleted" in shown) == (0, True)
    assert runner.ffdl("list", "-o", "name").stdout == ""
    assert runner.ffdl("delete", "--all", "-y").stderr == "there are no jobs\n"


def test_results_outlive_their_job_unless_asked(runner):
    """A record is thrown away every day, a model never by accident."""
    job = submit(runner, write_job(runner, 'echo model > "$RESULT_DIR/model"'))
    runner.ffdl("wait", job)
    stored = runner.home / "claims" / "ffdl-results" / "dlaas-trained-models" / job
    assert (stored / "model").exists()
    runner.ffdl("delete", job)
    assert (stored / "model").exists()
    again = submit(runner, str(runner.folder / "tiny" / "manifest.yml"))
    runner.ffdl("wait", again)
    runner.ffdl("delete", "--results", again)
    assert not (stored.parent / again).exists()


def test_waiting_can_be_given_up(runner):
    """A nightly script must end; that the job is not done yet is neither success nor failure."""
    job = submit(runner, write_job(runner, LONG))
    begun = time.monotonic()
    assert f"{job} is still" in runner.fails("wait", job, "--timeout", "1s", code=4)
    assert time.monotonic() - begun < 60


def test_progress_is_drawn_at_a_terminal_only(runner):
    """A bar in a log file is noise; at a terminal its absence is worry."""
    with Terminal(runner, "train", spirals(runner, 300), "--wait") as screen:
        screen.until("░")
        (runner.folder / "gate").touch()
        shown, code = screen.end()
    assert code == 0
    assert "\x1b[2K" in shown
    assert "step" in shown
    (runner.folder / "gate").unlink()
    said = ""
    with runner.start("resubmit", "@latest", "--wait") as process:
        for line in process.stderr:
            said += line
            if "PROCESSING" in line:
                (runner.folder / "gate").touch()
    assert process.returncode == 0
    assert "\x1b" not in said
    assert "PROCESSING" in said
