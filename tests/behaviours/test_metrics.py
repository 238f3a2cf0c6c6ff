"""Metrics and progress: what a script tells, or only prints, is there to look at while it runs and afterwards."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

from tests.behaviours.user import GATE, User


def records(user: User, job: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in user.ffdl("metrics", job, "-o", "json").stdout.splitlines()]


def values(record: dict[str, Any]) -> dict[str, str]:
    """Steps and values of a record as they were written."""
    return {name: about["value"] for part in ("etimes", "values") for name, about in record[part].items()}


def test_what_the_library_reports(user: User) -> None:
    """`job.step(…, loss=…)` is all a script needs: each step is a record, at once and for good."""
    script = """
    import os, time
    from ffdl import learner
    with learner.session() as job:
        for step in range(1, 11):
            job.step(step, of=10, loss=1 / step, seen=step * 32)
            while step == 4 and not os.path.exists(os.environ["JOB_STATE_DIR"] + "/gate"):
                time.sleep(0.02)
                job.step(step, of=10, loss=1 / step, seen=step * 32)
    """
    job = user.train(user.script(script))
    user.until_step(job, 4)
    running = records(user, job)
    assert user.engine.status(job).state == "PROCESSING"
    line = user.ffdl("metrics", job).stdout.splitlines()[0]
    assert re.search(r"learner-1 +train +iteration=1 +loss=1\.0 +seen=32$", line), line
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    after = records(user, job)
    assert after[: len(running)] == running
    assert list(dict.fromkeys(int(values(record)["iteration"]) for record in after)) == list(range(1, 11))
    last = after[-1]
    assert last["values"] == {"loss": {"type": "FLOAT", "value": "0.1"}, "seen": {"type": "INT", "value": "320"}}
    assert last["etimes"] == {"iteration": {"type": "INT", "value": "10"}}
    assert last["meta"]["training_id"] == job
    assert [record["meta"]["rindex"] for record in after] == list(range(1, len(after) + 1))
    shown = json.loads(user.ffdl("show", job, "-o", "json").stdout)
    assert (shown["step"], shown["of"], shown["progress"], shown["metrics"]["seen"]) == (10, 10, 1.0, 320.0)


def test_a_loss_that_is_no_number_any_more_is_seen(user: User) -> None:
    """Training that has diverged must not look like training whose loss is not told. And jq reads what we print."""
    script = """
    from ffdl import learner
    with learner.session() as job:
        job.step(1, of=2, loss=0.25, best=1.5, gain=1)
        job.step(2, of=2, loss=float("nan"), best=float("-inf"), gain=float("inf"))
    """
    job = user.train(user.script(script))
    assert user.until_over(job).state == "COMPLETED", user.story()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    shown = json.loads(user.ffdl("show", job, "-o", "json").stdout, parse_constant=refuse)
    assert shown["metrics"] == {"loss": "NaN", "best": "-Infinity", "gain": "Infinity"}
    assert "loss NaN  best -Infinity  gain Infinity" in user.ffdl("show", job).stdout
    assert [values(record)["loss"] for record in records(user, job)] == ["0.25", "nan"]


GROUPS = {
    "type": "regex_extractor",
    "groups": {
        "train": {
            "regex": r"Step %{INT:step}, loss %{FLOAT:loss}",
            "meta": {"subid": "training"},
            "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
            "etimes": {"iteration": {"type": "INT", "value": "$step"}},
        },
        "test": {
            "regex": r"Test of (?P<step>\d+):\n +accuracy (?P<accuracy>[0-9.]+)",
            "scalars": {"accuracy": {"type": "FLOAT", "value": "$accuracy"}},
            "etimes": {"iteration": {"type": "INT", "value": "$step"}},
        },
    },
}


def test_what_is_only_printed(user: User) -> None:
    """A script that nobody wants to change is read: FfDL's regex_extractor, over two lines too, for each learner."""
    script = """
    echo "Step 1, loss 2.5"; echo nothing; printf "Step 2, "; sleep 0.1; echo "loss 1e-3"
    echo "Test of 2:"; echo "   accuracy 0.75"; echo "Step 3, loss .5" >&2; printf "Step 4, loss 0.25"
    """
    folder = user.command(textwrap.dedent(script), learners=2, completion="all", evaluation_metrics=GROUPS)
    job = user.train(folder)
    assert user.until_over(job).state == "COMPLETED", user.story()
    found = records(user, job)
    expected = [
        ("train", {"iteration": "1", "loss": "2.5"}), ("train", {"iteration": "2", "loss": "1e-3"}),
        ("test", {"iteration": "2", "accuracy": "0.75"}), ("train", {"iteration": "3", "loss": ".5"}),
        ("train", {"iteration": "4", "loss": "0.25"}),
    ]  # fmt: skip
    logs = user.ffdl("logs", job).stdout
    for learner in ("learner-1", "learner-2"):
        stored = (user.results(job) / learner / "evaluation-metrics.txt").read_text().splitlines()
        assert [(r["grouplabel"], values(r)) for r in map(json.loads, stored)] == expected
        assert f"{learner} | Step 1, loss 2.5" in logs
        assert "Step 1, loss 2.5\n" in (user.results(job) / learner / "training-log.txt").read_text()
    assert len(found) == 2 * len(expected)
    times = [record["meta"]["time"] for record in found]
    assert times == sorted(times), "oldest first"


def test_a_file_of_metrics(user: User) -> None:
    """Scripts that write FfDL's records themselves, to $LOG_DIR/evaluation-metrics.txt, see them listed."""
    record = {
        "meta": {"training_id": "x", "time": 1700000000000, "rindex": 1, "subid": "own"},
        "grouplabel": "own", "etimes": {"iteration": {"type": "INT", "value": "7"}},
        "values": {"loss": {"type": "FLOAT", "value": "0.125"}},
    }  # fmt: skip
    script = f"""
    mkdir -p "$LOG_DIR/learner-$LEARNER_ID"
    echo '{json.dumps(record)}' >> "$LOG_DIR/evaluation-metrics.txt"
    echo 'not a record' >> "$LOG_DIR/evaluation-metrics.txt"
    """
    script = f"{textwrap.dedent(script)}\n{GATE}"
    job = user.train(user.command(script, evaluation_metrics={"type": "emetrics_file"}))
    user.wait_for(lambda: bool(records(user, job)), "the record")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    (found,) = records(user, job)
    assert values(found) == {"iteration": "7", "loss": "0.125"}


def test_what_a_script_writes_to_log_dir_is_stored(user: User) -> None:
    """FfDL stored all of LOG_DIR: people look at TensorBoard's files in $JOB_STATE_DIR/logs/tb afterwards."""
    job = user.train(user.command('mkdir "$JOB_STATE_DIR/logs/tb"; echo events > "$JOB_STATE_DIR/logs/tb/x.tfevents"'))
    assert user.until_over(job).state == "COMPLETED", user.story()
    assert [path.read_text() for path in user.results(job).rglob("x.tfevents")] == ["events\n"]


def test_no_metrics_are_no_error(user: User) -> None:
    """Most scripts report none; what they print is no less there."""
    job = user.train(user.command('echo "loss 1"'))
    assert user.until_over(job).state == "COMPLETED"
    done = user.ffdl("metrics", job)
    assert done.stdout == ""
    assert "no metrics" in done.stderr
    assert user.ffdl("logs", job).stdout == "loss 1\n"


def test_progress_and_time_to_go(user: User) -> None:
    """A user decides by the list whether to wait for a job or to go home."""
    script = """
    import os, time
    from ffdl import learner
    with learner.session() as job:
        step = 0
        while step < 1000:
            gate = os.path.exists(os.environ["JOB_STATE_DIR"] + "/gate")
            step = 1000 if gate else step + 1
            job.step(step, of=1000, loss=0.5)
            time.sleep(0.02 if step < 500 else 1)  # from half way on it waits to be looked at
    """
    job = user.train(user.script(script))
    status = user.until(job, lambda status: status.eta is not None)
    assert 0 < status.progress < 1
    assert (status.of, status.metrics["loss"]) == (1000, 0.5)
    assert 5 < status.eta < 3000, "a thousand steps of 20 ms, or of many times that on a busy machine"
    heading, line = user.ffdl("list").stdout.splitlines()
    row = dict(zip(re.split(r" {2,}", heading.strip()), re.split(r" {2,}", line.strip()), strict=False))
    assert row["STATE"] == "PROCESSING"
    assert re.fullmatch(r"\d+%", row["PROGRESS"].replace(" ", "")), row
    assert re.match(r"\d+ ?[sm]", row["ETA"]), row
    user.open_gate(job)
    assert user.until_over(job).progress == 1.0
    line = user.ffdl("list").stdout.splitlines()[1]
    assert "COMPLETED" in line
    assert "100%" in line.replace(" %", "%")


def test_metrics_that_are_none_are_left_out(user: User) -> None:
    """A script may write to the metrics file itself; a bad line must not cost the good ones."""
    lines = [
        '{"meta": 5}', "[1]", "null", '{"values": 3}', "[" * 100_000, '{"meta": {"time": "x"}}',
        '{"meta": {"time": 5}, "grouplabel": "mine", "values": {"loss": {"type": "FLOAT", "value": "1"}}}',
    ]  # fmt: skip
    folder = user.command('cat lines > "$LOG_DIR/learner-1/evaluation-metrics.txt"')
    (folder / "lines").write_text("".join(f"{line}\n" for line in lines))
    job = user.train(folder)
    assert user.until_over(job).state == "COMPLETED"
    assert "mine" in user.ffdl("metrics", job).stdout
