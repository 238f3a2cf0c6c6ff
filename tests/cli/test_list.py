"""`ffdl list`, `show` and `status`: readable at a terminal, whole when piped, plain values for scripts."""

import json
import subprocess
import time

import pytest
import yaml

from ffdl.cli import text
from ffdl.cli.list import HEADINGS, listing
from ffdl.engines.status import JobStatus
from tests.cli.shell import FFDL

DAY = 86400.0


def test_finished_jobs_of_other_days_are_hidden_and_counted(shell):
    """The list stays short over the years, and nobody thinks that a job is lost."""
    shell.job("training-oldoldoldo", state="COMPLETED", ago=2 * DAY)
    shell.job("training-oldfailedx", state="FAILED", ago=2 * DAY)
    shell.job("training-oldrunning", ago=2 * DAY)
    shell.job("training-newnewnewn", state="COMPLETED", ago=60)
    done = shell.ffdl("list", "-o", "name")
    assert done.stdout.split() == ["training-newnewnewn", "training-oldrunning"]
    assert "2 jobs that ended more than a day ago not shown; -a shows all" in shell.ffdl("list").stderr
    done = shell.ffdl("list", "-a")
    assert "not shown" not in done.stderr
    assert len(done.stdout.splitlines()) == 5
    assert shell.ffdl("list", "--state", "failed", "-o", "name").stdout.split() == ["training-oldfailedx"]


def test_the_columns_and_the_reason_are_whole_when_piped(shell):
    """`grep` and `awk` must find everything on the job's one line."""
    long = "a name that is much longer than any terminal would show in its column " * 3
    shell.job("training-aaaaaaaaaa", name=long.strip(), progress="1/4", eta=100.0)
    shell.job("training-bbbbbbbbbb", state="FAILED")
    head, second, first = shell.ffdl("list").stdout.splitlines()
    assert head.split() == [*HEADINGS, "REASON"]
    assert long.strip() in first
    assert " 25% " in first
    assert "learner 1 exited with code 3" in second
    assert "\x1b" not in head + second + first


def test_a_terminal_of_80_columns_shows_lines_that_fit_and_the_reason_below(shell):
    """A wrapped table can't be read."""
    shell.job("training-aaaaaaaaaa", progress="1/4", eta=100.0, name="a rather long name for a job of mine")
    shell.job("training-bbbbbbbbbb", state="QUEUED")
    shown, code = shell.terminal("list")
    assert code == 0
    import click

    lines = click.unstyle(shown).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines] == ["NAME", "digits", "└", "a"]
    assert "└ needs 4 CPUs, 1 is free" in lines[2]
    assert "training-aaaaaaaaaa" in lines[3]
    assert "\x1b[" in shown


def test_colours_are_for_terminals_and_those_who_want_them(shell):
    """NO_COLOR is kept; a dumb terminal gets plain text."""
    shell.job("training-aaaaaaaaaa")
    assert "\x1b[36mPROCESSING" in shell.terminal("list")[0]
    assert "\x1b" not in shell.terminal("list", NO_COLOR="1")[0]


def test_scripts_get_all_of_it_as_json_and_yaml(shell):
    """The same values in both, under stable names."""
    shell.job("training-aaaaaaaaaa", state="FAILED", name="a: b")
    (job,) = json.loads(shell.ffdl("list", "-o", "json").stdout)
    assert (job["id"], job["name"], job["state"]) == ("training-aaaaaaaaaa", "a: b", "FAILED")
    assert (job["reason"], job["exit_code"], job["error_code"]) == ("learner 1 exited with code 3", 3, "C201")
    assert yaml.safe_load(shell.ffdl("list", "-o", "yaml").stdout) == [job]
    assert json.loads(shell.ffdl("show", "@latest", "-o", "json").stdout) == job
    assert yaml.safe_load(shell.ffdl("show", "@latest", "-o", "yaml").stdout) == job


def test_an_empty_list_is_empty_for_scripts_and_a_hint_for_people(shell):
    """`ffdl list -o json | jq` must get a list."""
    assert shell.ffdl("list", "-o", "json").stdout == "[]\n"
    assert shell.ffdl("list", "-o", "name").stdout == ""
    done = shell.ffdl("list")
    assert done.stdout == ""
    assert "ffdl init NAME" in done.stderr
    assert shell.ffdl("list", "--state", "failed").stderr == "no job is FAILED; `ffdl list -a` shows all\n"


def test_a_closed_output_is_no_fault(shell):
    done = subprocess.run(f"{FFDL} list >&-", shell=True, env=shell.env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "no jobs; `ffdl init NAME` makes one to try\n")


def test_a_name_cannot_steer_the_terminal(shell):
    """A job's name comes from whoever wrote the manifest."""
    shell.job("training-aaaaaaaaaa", name="evil\x1b[2J\nline\u202e")
    for verb in (["list"], ["show", "@latest"]):
        out = shell.ffdl(*verb).stdout
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "evil" in out
    assert len(shell.ffdl("list").stdout.splitlines()) == 2


def test_status_prints_one_word(shell):
    """`[ "$(ffdl status ID)" = COMPLETED ]`."""
    for state in ("PROCESSING", "QUEUED", "HALTED", "COMPLETED", "FAILED"):
        job = shell.job(f"training-{state.lower():a<10}", state=state)
        assert shell.ffdl("status", job).stdout == f"{state}\n"


def test_show_tells_what_a_person_asks(shell):
    """State, why, size, the attempts of each step, and what can be done now."""
    shell.job("training-aaaaaaaaaa", state="FAILED", summary={"description": "digits, again", "gpus": 2})
    done = shell.ffdl("show", "@latest")
    for words in (
        "digits, again",
        "learner 1 exited with code 3",
        "C201",
        "numpy 2.1",
        "1 CPU, 2 GPUs, 1 GiB",
        "learner-1",
    ):
        assert words in done.stdout
    assert "ffdl resubmit training-aaaaaaaaaa" in done.stderr
    assert "ffdl resubmit" not in done.stdout
    workflow = yaml.safe_load(shell.ffdl("show", "@latest", "--workflow").stdout)
    assert workflow["status"]["phase"] == "Failed"


def test_watching_draws_the_table_anew_when_something_changes(shell):
    """One window that stays open beside the work; Ctrl-C closes it, quietly."""
    from ffdl.engines.local.state import Home, write_json
    from tests.cli.shell import Terminal

    shell.job("training-aaaaaaaaaa")
    with Terminal(shell, "list", "-w") as screen:
        screen.until("PROCESSING")
        job = Home(shell.home).job("training-aaaaaaaaaa")
        write_json(job.control / "status.json", {"phase": "Succeeded"})
        shown = screen.until("COMPLETED")
        assert "\x1b[2A" in shown
        screen.type("\x03")
        assert screen.end()[1] == 0


def test_watching_without_a_terminal_prints_a_line_for_each_change(shell):
    """`ffdl list -w >> log` is a use, escape codes in it are not."""
    import signal

    from tests.cli.shell import PATIENCE

    shell.job("training-aaaaaaaaaa")
    process = shell.start("list", "-w")
    line = process.stdout.readline()
    assert line.split()[2:] == ["training-aaaaaaaaaa", "PROCESSING"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert shell.fails("list", "-w", "-o", "json").startswith("-w draws a table")


def status(**values):
    return JobStatus(
        **{"id": "training-abcdefghij", "state": "PROCESSING", "name": "digits", "submitted": 0.0} | values
    )


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_of_jobs_is_wider_than_the_terminal(width):
    """Whatever the names; the id and the state are always whole, because they are copied and acted on."""
    jobs = [
        status(
            name="n" * 90, framework="tensorflow", version="1.5.0-gpu-py3", learners=12, gpus=4, attempts=3, eta=9.0
        ),
        status(name="日本語の名前" * 9, framework="custom", version="docker.io/library/python:3.12-slim", progress=0.5),
    ]
    lines = listing(jobs, 100.0, width)
    assert max(text.width_of(line.replace("\x1b[36m", "").replace("\x1b[0m", "")) for line in lines) <= width
    assert all("training-abcdefghij" in line and "PROCESSING" in line for line in lines[1:])


def test_columns_that_say_the_usual_go_first():
    """On a narrow terminal what differs is worth its place: attempts here, GPUs not."""
    head = listing([status(attempts=3, framework="numpy", version="2")], 0.0, 80)[0]
    assert "ATTEMPTS" in head
    assert "GPUS" not in head
    assert listing([status()], 0.0, 200)[0].split() == listing([status()], 0.0, None)[0].split()[:-1]


@pytest.mark.parametrize(
    ("seconds", "short", "long"),
    [(0, "0s", "0.0s"), (59.9, "59s", "59s"), (119, "119s", "1m 59s"), (600, "10m", "10m 0s"), (7300, "2h", "2h 1m"),
     (90000, "1d", "1d 1h"), (-5, "0s", "0.0s"), (3.14, "3s", "3.1s")],
)  # fmt: skip
def test_durations_are_short(seconds, short, long):
    """Columns have five places for them; a clock set back must not show minus signs."""
    assert (text.short_duration(seconds), text.duration(seconds)) == (short, long)


def test_percent_is_whole_only_at_the_end():
    """100% of a job that still works looks like one that hangs."""
    assert [text.percent(share) for share in (None, 0.0, 0.29, 0.999, 1.0)] == ["", "0%", "29%", "99%", "100%"]


def test_dates_are_local_and_sortable():
    """People compare them with their clock, `sort` with each other."""
    now = time.time()
    assert text.date(now) == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
