"""How a pod ends, and what is known of it then."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from ffdl.engines.local import processes, supervisor
from ffdl.engines.local.pod import Mount, Output, PodSpec, Volume

# leaves the process group, the session and its parent, and hears no signal that can be refused
DAEMON = "(setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > $0; exec sleep 1000' $J/daemon >/dev/null 2>&1 &) ; "


def test_success(pods) -> None:
    """A step that exits 0 is green, with the times people see in `show`."""
    before = time.time()
    seen = pods.run("exit 0")
    assert (seen.phase, seen.exit_code, seen.message) == ("Succeeded", 0, "")
    assert before <= seen.started_at <= seen.finished_at <= time.time()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("exit 75", 75), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_failure(pods, script: str, code: int) -> None:
    """The retry expression and the user's `FAILED with 3` depend on the very code and on Argo's wording."""
    seen = pods.run(script)
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", code, f"main: Error (exit code {code})")


def test_init_containers_come_first_in_order_and_share_the_pods_volumes(pods) -> None:
    """The agent's Python is copied in by an init container: it has to be there, whole, when main starts."""
    init = {"one": "echo 1 >> $R/order", "two": "echo 2 >> $R/order"}
    pod = pods.start("cat $R/order", init=init)
    assert pods.end(pod).phase == "Succeeded"
    assert pods.log(pod) == "1\n2\n"


def test_failed_init_container(pods) -> None:
    """Seen on Argo: Failed, -1, and the init container named. Main must not run on a half-made volume."""
    seen = pods.run("echo ran > $J/ran", init={"one": "true", "prep": "exit 7", "three": "echo ran > $J/ran"})
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", -1, "prep: Error (exit code 7)")
    assert not (pods.shared / "ran").exists()


def test_pending_until_main_runs(pods) -> None:
    """`show` tells a pod that prepares from one that trains."""
    pod = pods.start(
        "echo up > $J/main; read x < $J/never; cat",
        init={"prep": "echo up > $J/init; until [ -e $J/go ]; do sleep 0.01; done"},
    )
    pods.wait_for("init")
    assert supervisor.observe(pod).phase == "Pending"
    (pods.shared / "go").touch()
    pods.wait_for("main")
    pods.end(pod)


def test_running(pods) -> None:
    """A pod whose main container works is Running, since when is known, and a look does not disturb it."""
    before = time.time()
    pod = pods.start("echo up > $J/up; sleep 1000")
    pods.wait_for("up")
    seen = supervisor.observe(pod)
    assert (seen.phase, seen.ended, seen.exit_code) == ("Running", False, None)
    assert before <= seen.started_at <= time.time()
    main = pods.pids(pod)["main"]
    pods.await_(lambda: b"sleep" in Path(f"/proc/{main}/cmdline").read_bytes(), "main's command")


def test_never_launched(pods) -> None:
    """The runner launches what it finds unlaunched, also after a crash between writing pod.json and launching."""
    assert supervisor.observe(pods.make("true")) is None


@pytest.mark.parametrize("argv", [["/no/such/program"], ["/etc/passwd"], []])
def test_command_that_cannot_run(pods, argv: list[str]) -> None:
    """A misspelt command is a failed step with the reason in its log, not a pod that hangs or is retried for ever."""
    pod = pods.start(argv)
    seen = pods.end(pod)
    assert (seen.phase, seen.exit_code) == ("Failed", 64)
    assert "can't run" in pods.log(pod)


def test_volume_that_is_not_there(pods) -> None:
    """A pod that can't start says which volume is missing, in a line a person can act on."""
    pods.volumes["gone"] = Volume("folder", str(pods.folder / "gone"))
    pods.mounts.append(Mount("gone", "/mnt/data/gone"))
    seen = pods.run("true")
    assert (seen.phase, seen.exit_code) == ("Error", -1)
    assert seen.message == "volume gone can't be mounted at /mnt/data/gone: No such file or directory"


def test_unreadable_pod_is_an_error_not_a_loop(pods) -> None:
    """A pod.json that can't be read would be launched again for ever if nothing said so."""
    pod = pods.make("true")
    (pod / "pod.json").write_text("{")
    supervisor.launch(pod)
    assert pods.end(pod).phase == "Error"


@pytest.mark.parametrize("script", [DAEMON + "exit 0", DAEMON + "exit 5", DAEMON + "kill -9 $$"])
def test_end_takes_daemons_along(pods, script: str) -> None:
    """Whatever user code left running holds CPUs and GPUs that the next job was promised."""
    script = script.replace("; exit", "; until [ -s $J/daemon ]; do sleep 0.01; done; exit")
    pods.run(script)
    assert pods.marked() == []


def test_daemon_of_an_init_container_ends_with_it(pods) -> None:
    """An init container is over when it is over: nothing of it may hold the agent's files while main starts."""
    wait = "until [ -s $J/daemon ]; do sleep 0.01; done"
    main = "ls /proc/$(cat $J/daemon)/ns/pid 2>/dev/null; echo up > $J/up; sleep 1000"
    pod = pods.start(main, init={"prep": DAEMON + wait})
    pods.wait_for("daemon")
    pods.wait_for("up")  # what main starts stays there from now on
    assert supervisor.observe(pod).phase == "Running"
    seen = pods.pids(pod)
    sleeping = [p for p in pods.processes() if p not in seen.values()]
    assert all(b"1000" not in Path(f"/proc/{p}/cmdline").read_bytes() or _below(p, seen["main"]) for p in sleeping)


def _below(pid: int, top: int) -> bool:
    return f"\nPPid:\t{top}\n" in Path(f"/proc/{pid}/status").read_text()


def test_daemon_that_holds_the_output_does_not_delay_the_end(pods) -> None:
    """`server &` in a script is common; the pod ends when its main process does."""
    seen = pods.run("sleep 1000 & sleep 1000 & echo said; exit 4")
    assert seen.exit_code == 4
    assert seen.finished_at - seen.started_at < 30


def test_environment_is_the_containers_own(pods) -> None:
    """A variable of the user's shell must not change what a job does."""
    pod = pods.start(["/usr/bin/env"])
    pods.end(pod)
    names = {line.split("=")[0] for line in pods.log(pod).splitlines()}
    assert names - {"FFDL_ROOT"} == {"PATH", "ARGO_PROGRESS_FILE", "FFDL_POD"}


def test_a_program_finds_signals_files_and_session_as_usual(pods) -> None:
    """Python ignores SIGPIPE; a shell pipeline in a job must not. Input is empty, nothing else is open."""
    pod = pods.start("cat; ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; kill -PIPE $$")
    seen = pods.end(pod)
    assert seen.exit_code == 128 + 13
    # ls has 0, 1, 2 and the folder it lists
    assert pods.log(pod).split() == ["4", "SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


def test_working_directory(pods) -> None:
    """workingDir is honoured, in a mount too, and made if it isn't there (as container runtimes do)."""
    pod = pods.start("pwd -P", cwd="/job/deep/er")
    assert pods.end(pod).phase == "Succeeded"
    assert (pods.shared / "deep/er").is_dir()
    assert pods.log(pod).strip().endswith("/deep/er")


def test_output_parameters(pods) -> None:
    """The helper hands offers to the Workflow by these files; one newline at the end is not part of them."""
    wanted = [
        Output("a", "/ffdl/run/a"),
        Output("b", "/ffdl/run/b", default="else"),
        Output("c", "/ffdl/run/c", default="x"),
    ]
    seen = pods.run("printf '[4,5]\\n' > $R/a; printf 'one\\ntwo\\n\\n' > $R/c", outputs=wanted)
    assert seen.phase == "Succeeded"
    assert seen.outputs == {"a": "[4,5]", "b": "else", "c": "one\ntwo\n"}


def test_output_parameters_of_a_failed_attempt(pods) -> None:
    """Seen on Argo: an attempt that exits 75 has its outputs, or their defaults."""
    seen = pods.run("exit 75", outputs=[Output("a", "/ffdl/run/a", default="[]")])
    assert (seen.exit_code, seen.outputs) == (75, {"a": "[]"})


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("true", "open /mainctrfs/ffdl/run/a: no such file or directory"),
        ("mkfifo $R/a", "/ffdl/run/a is not a regular file"),
        ("mkdir $R/a", "/ffdl/run/a is not a regular file"),
        ("head -c 300000 /dev/zero > $R/a", "output parameter a: /ffdl/run/a has more than 256 KiB"),
    ],
)
def test_output_parameter_that_cannot_be_had(pods, script: str, words: str) -> None:
    """A missing output is red, in Argo's words; user code can't have the engine hang or filled up."""
    seen = pods.run(script, outputs=[Output("a", "/ffdl/run/a")])
    assert (seen.phase, seen.exit_code) == ("Error", 0)
    assert seen.message == f"wait: Error (exit code 64): {words}"


@pytest.mark.parametrize(
    ("script", "progress"),
    [
        ("echo 3/10 > $R/progress", "3/10"),
        ("echo 3/10 > $ARGO_PROGRESS_FILE", "3/10"),
        ("printf '1/10\\n 2/10 \\njunk\\n' > $R/progress", "2/10"),
        ("printf '1/10\\n9' > $R/progress", "1/10"),
        ("echo 11/10 > $R/progress", ""),
        ("echo 0/0 > $R/progress", ""),
        ("echo -1/5 > $R/progress", ""),
        ("ln -s $J/elsewhere $R/progress; echo 1/2 > $J/elsewhere", ""),
        ("mkfifo $R/progress", ""),
        ("(head -c 9000000 /dev/zero; printf '\\n5/6\\n') > $R/progress", "5/6"),
        ("true", ""),
    ],
)
def test_progress(pods, script: str, progress: str) -> None:
    """PROGRESS in `list` is what the job last said in Argo's way; nothing user code may write breaks a look."""
    pod = pods.start(f"{script}; echo up > $J/up; until [ -e $J/go ]; do sleep 0.01; done")
    pods.wait_for("up")
    assert supervisor.observe(pod).progress == progress
    (pods.shared / "go").touch()
    assert pods.end(pod).progress == progress


def test_names_with_everything_in_them(pods) -> None:
    """Buckets, files and folders have spaces, commas, colons, unicode and leading dashes."""
    odd = "-a b,c:d\\é'\"$(x)"
    source = pods.folder / odd
    source.mkdir()
    (source / odd).write_text("here")
    pods.volumes["odd"] = Volume("overlay", str(source))
    pods.mounts.append(Mount("odd", f"/mnt/data/{odd}"))
    pod = pods.make("cat $FFDL_ROOT/mnt/data/*/*")
    spec = PodSpec.from_json((pod / "pod.json").read_text())
    (pod / "pod.json").write_text(replace(spec, outputs=[Output("o", f"/mnt/data/{odd}/{odd}")]).to_json())
    supervisor.launch(pod)
    assert pods.end(pod).outputs == {"o": "here"}
    assert pods.log(pod) == "here"


def test_idle_supervisor_uses_no_processor(pods) -> None:
    """Hundreds of pods may sit for days; none may be polled for."""
    pod = pods.start("echo up > $J/up; sleep 1000")
    pods.wait_for("up")
    supervisor_pid = pods.pids(pod)["supervisor"]

    def switches() -> str:
        status = Path(f"/proc/{supervisor_pid}/status").read_text()
        return status[status.index("voluntary_ctxt_switches") :]

    pods.await_(lambda: processes.stat(supervisor_pid).state == "S", "the end of what it does as main begins")
    before = switches()
    time.sleep(0.5)
    assert switches() == before


OVERDUE = "Pod was active on the node longer than the specified deadline"
ENOUGH_TO_BEGIN = 5.0  # seconds from the start of a pod in which its command has set its trap, however busy the machine


def test_a_pod_past_its_time_has_failed(pods) -> None:
    """`activeDeadlineSeconds` and `timeout`: SIGTERM, the grace, and the words that Kubernetes has for it."""
    hears = pods.start("sleep 1000", active_deadline=ENOUGH_TO_BEGIN)
    deaf = pods.start("trap '' TERM; while :; do sleep 0.01; done", active_deadline=ENOUGH_TO_BEGIN, grace=0.2)
    seen = pods.run("true", init={"first": "sleep 1000"}, active_deadline=0.3)
    assert (seen.phase, seen.message) == ("Failed", OVERDUE)
    seen = pods.end(hears)
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", 143, OVERDUE)
    seen = pods.end(deaf)
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", 137, OVERDUE)


def test_a_pod_with_time_left_ends_as_it_does(pods) -> None:
    """A limit that isn't reached changes nothing."""
    seen = pods.run("exit 3", active_deadline=1000, deadline=time.time() + 1000)
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", 3, "main: Error (exit code 3)")


def test_main_is_asked_to_end_when_all_attempts_have_had_their_time(pods) -> None:
    """`maxDuration` of a retry strategy: what main makes of it counts."""
    traps = "trap 'exit 7' TERM; echo up > $J/up; while :; do sleep 0.01; done"
    seen = pods.run(traps, deadline=time.time() + ENOUGH_TO_BEGIN)
    assert (seen.phase, seen.exit_code, seen.message) == ("Failed", 7, "main: Error (exit code 7)")
