"""How a job fails: with the user's own code and reason, logs and results kept, and retried where that was granted."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

import pytest

from tests.behaviours.user import FFDL, PATIENCE, User


def test_exit_3_is_final_and_everything_is_kept(user: User) -> None:
    """A script that fails is told apart from a machine that fails; what it wrote helps to find out why."""
    job = user.train(user.command('echo partial > "$RESULT_DIR/partial"; echo oh no; exit 3'))
    assert "exited with code 3" in user.failed(job)
    assert (user.results(job) / "partial").read_text() == "partial\n"
    assert "oh no" in (user.results(job) / "learner-1" / "training-log.txt").read_text()
    assert "oh no" in user.ffdl("logs", job).stdout
    user.ffdl("wait", job, code=1)
    shown = json.loads(user.ffdl("show", job, "-o", "json").stdout)
    assert (shown["state"], shown["exit_code"], shown["error_code"]) == ("FAILED", 3, "C201")


def test_granted_restarts_are_used_and_then_it_is_over(user: User) -> None:
    """`retry: {attempts: 2}` means three tries, not for ever."""
    script = 'echo x >> "$CHECKPOINT_DIR/tries"; exit 3'
    job = user.train(user.command(script, retry={"attempts": 2}))
    assert "3" in user.failed(job)
    tries = list(user.results(job).rglob("tries"))
    assert [path.read_text() for path in tries] == ["x\nx\nx\n"]
    status = user.engine.status(job)
    assert (status.attempts, status.exit_code, status.error_code) == (3, 3, "C201")


def test_a_granted_restart_can_succeed(user: User) -> None:
    """A flaky script gets through."""
    script = 'if [ -e "$CHECKPOINT_DIR/again" ]; then exit 0; fi; touch "$CHECKPOINT_DIR/again"; exit 9'
    job = user.train(user.command(script, retry={"attempts": 1}))
    assert user.until_over(job).state == "COMPLETED"


def test_a_script_that_exits_75_for_ever_ends_with_a_reason(user: User) -> None:
    """75 says "again, please"; a script that never says anything else must not run for ever."""
    job = user.train(user.command("exit 75"))
    assert "asked to be started again" in user.failed(job)


NO_CGROUP = pytest.param("none", marks=pytest.mark.local("a cluster has cgroups"))


@pytest.mark.parametrize("cgroup", ["", NO_CGROUP], ids=["by the kernel", "by sampling"])
def test_out_of_memory_says_so_with_the_limit(user: User, cgroup: str) -> None:
    """ "It was killed" helps nobody; "out of memory, the limit is 200 MiB" does."""
    if cgroup:
        user.env["FFDL_CGROUP"] = cgroup
    eat = "import time\nkept = []\nwhile True:\n    kept.append(bytearray(b'x' * (8 << 20)))\n    time.sleep(0.02)\n"
    folder = user.job(memory="200MiB", framework={"name": "numpy", "version": "2", "command": "exec python eat.py"})
    (folder / "eat.py").write_text(eat)
    job = user.train(folder)
    reason = user.failed(job)
    assert "out of memory" in reason.lower()
    assert "200" in reason or "210" in reason, reason


def test_stopped_jobs_keep_what_they_have(user: User) -> None:
    """Stopping is the end, not the loss, of a job."""
    job = user.train(user.command('echo half > "$RESULT_DIR/half"; sleep 1000', halt_grace="1s"))

    def written() -> bool:
        return [path.read_text() for path in user.volume(job).glob("results/*/*/half")] == ["half\n"]

    user.wait_for(written, "half a result")
    user.ffdl("stop", job)
    assert "stopped" in user.failed(job)
    assert (user.results(job) / "half").read_text() == "half\n"


def test_longer_than_max_runtime(user: User) -> None:
    """A limit on running time is kept, and said."""
    job = user.train(user.command("sleep 1000", max_runtime="2s", halt_grace="1s"))
    assert "max_runtime" in user.failed(job)


def test_descendants_end_with_the_pod(user: User) -> None:
    """A script that leaves a daemon behind must not leave it on the machine."""
    mark = f"ffdl-test-daemon-{uuid.uuid4().hex}"  # tests that run beside this one have theirs
    daemon = f"setsid bash -c 'exec -a {mark} sleep 1000' </dev/null >/dev/null 2>&1 & sleep 0.2; true"
    job = user.train(user.command(daemon))
    assert user.until_over(job).state == "COMPLETED"
    assert subprocess.run(["pgrep", "-f", mark], capture_output=True).returncode == 1


@pytest.mark.parametrize(
    "command",
    [
        "echo '{{workflow.name}} {{=1+1}} {{inputs.parameters.x}}'",
        "echo '$$ $(HOME)' \"$$\" | sed 's/[0-9]\\+$/PID/'",
        'echo "it\'s" \'a "test"\' \\\\ žluťoučký 🐎',
    ],
)
def test_a_command_reaches_the_shell_as_written(user: User, command: str) -> None:
    """Nothing on the way rewrites what the user typed."""
    wanted = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    job = user.train(user.command(f'({command}) > "$RESULT_DIR/said"'))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (user.results(job) / "said").read_text() == wanted


@pytest.mark.parametrize("name", ["a b c", "žluťoučký 🐎", "-dash", "x" * 200])
def test_odd_names(user: User, name: str) -> None:
    """People name things as they like: jobs and files."""
    folder = user.command(f"cp -- './{name}' \"$RESULT_DIR/\"", name=f"job {name}"[:60])
    manifest = folder / "manifest.yml"
    manifest.write_text(manifest.read_text().replace("name: small", f"name: {json.dumps(name, ensure_ascii=False)}"))
    (folder / name).write_text("kept")
    job = user.train(folder)
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert (user.results(job) / name).read_text() == "kept"


def test_secrets_of_the_machine_are_not_stored(user: User) -> None:
    """A link in the results to a file that the script may not publish is not followed."""
    secret = user.folder / "secret"
    secret.write_text("hush")
    links = f'ln -s {secret} "$RESULT_DIR/innocent"; ln -s {secret} "$CHECKPOINT_DIR/x"'
    links += '; ln -s /etc/group "$RESULT_DIR/group"'
    script = links + '; umask 077; echo mine > "$RESULT_DIR/mine"'
    job = user.train(user.command(script))
    assert user.until_over(job).state == "COMPLETED"
    kept = [path for path in user.results(job).rglob("*") if path.is_file()]
    assert all("hush" not in path.read_text(errors="replace") for path in kept)
    assert "group" not in [path.name for path in kept], "a file of the pod that stores results"
    assert (user.results(job) / "mine").read_text() == "mine\n", "a file of mode 0600 is stored"


def test_delete_and_train_at_once(user: User) -> None:
    """Two terminals: a job being deleted and one being made do not get into each other's way."""
    first = user.train(user.job("first"))
    second = user.job("second", env={"STEPS": "5"})
    commands = [["delete", "-y", first], ["train", str(second / "manifest.yml")]]
    running = [
        subprocess.Popen([str(FFDL), *command], env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    ends = [process.communicate(timeout=PATIENCE) for process in running]
    assert [process.returncode for process in running] == [0, 0], ends
    assert first not in user.engine.ids()
    assert user.until_over(user.engine.ids()[0]).state == "COMPLETED"


def test_the_python_api_does_the_same(user: User) -> None:
    """A notebook submits, waits, reads logs and halts without the command line."""
    user.job()
    script = f"""
from ffdl import Client, TrainingJob
client = Client({user.engine_name!r})
job = client.submit(TrainingJob.from_arguments(name="py", cpus=0.5, memory="100MB",
    framework={{"name": "custom", "version": {user.image!r}, "command": "echo hello from python"}}))
small = client.train("job/manifest.yml", overrides=["env.STEPS=5"])
assert small.wait(180).state == "COMPLETED"
print(job.wait(180).state, [line.text for line in job.logs()], job.workflow()["kind"])
"""
    done = subprocess.run([sys.executable, "-c", script], env=user.env, cwd=user.folder, capture_output=True, text=True)
    assert done.stdout.strip() == "COMPLETED ['hello from python'] Workflow", done.stderr


def test_a_pod_that_cannot_start_says_why_and_ends(user: User) -> None:
    """A Secret that nobody made must not keep a job waiting for ever, nor silently."""
    job = user.train(user.command("true", env_from_secret=["nowhere"], start_timeout=user.soon))
    waiting = user.until(job, lambda s: s.state == "PENDING" and "nowhere" in s.reason)
    assert 'secret "nowhere" not found' in waiting.reason
    reason = user.failed(job)
    assert "start_timeout" in reason
    assert 'secret "nowhere" not found' in reason


def test_a_secret_reaches_the_command(user: User) -> None:
    """Credentials a script needs come from a Secret, not from the manifest."""
    user.secret("mine", {"API_KEY": "psst"})
    job = user.train(user.command('[ "$API_KEY" = psst ]', env_from_secret=["mine"]))
    assert user.until_over(job).state == "COMPLETED", user.story()
