"""The memory of a long run of faults: it must survive an interruption, and never mix what is not comparable."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.faults.matrix import chosen, described
from tests.faults.records import FAILED, HELD, SLOW, Record, Records, Setting, latest, of
from tests.faults.scenarios import SCENARIOS
from tests.faults.table import page

HERE, EARLIER = Setting("abc", "4.0.2", "1.34.4", False), Setting("old", "4.0.2", "1.34.4")
CAPTURING = Setting("abc", "4.0.2", "1.34.4", True)
FIRST, SECOND, THIRD = (scenario.name for scenario in SCENARIOS[:3])


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    """A run of an hour that is interrupted goes on where it was."""
    records = Records(tmp_path / "new")
    assert records.all() == []
    record = Record(FIRST, HERE, 12.5, SLOW, 33.25, "why", ["a note"], 1.5, "model")
    records.add(record, "a story")
    assert Records(tmp_path / "new").all() == [record]
    assert records.story(record).read_text() == "a story"


def test_a_line_cut_short_costs_that_line_alone(tmp_path: Path) -> None:
    """A machine that loses power in the middle of a write loses one run, not all of them."""
    records = Records(tmp_path)
    records.add(Record(FIRST, HERE, 1.0, HELD))
    with records.file.open("a") as stream:
        stream.write('{"scenario": "half')
    records.add(Record(SECOND, HERE, 2.0, HELD))
    assert [record.scenario for record in records.all()] == [FIRST, SECOND]


def test_a_record_that_does_not_say_how_pods_ends_were_captured_is_read(tmp_path: Path) -> None:
    """Hours of measurements must not be lost to a word more in each."""
    earlier = asdict(Record(FIRST, EARLIER, 1.0, HELD, 20.0))
    del earlier["setting"]["finalizer"]
    (tmp_path / "records.jsonl").write_text(json.dumps(earlier) + "\n")
    assert Records(tmp_path).all() == [Record(FIRST, EARLIER, 1.0, HELD, 20.0)]


@pytest.mark.parametrize(("value", "found"), [("true", CAPTURING), ("false", HERE), (None, HERE)])
def test_the_setting_is_read_from_the_controllers_deployment(value: str | None, found: Setting) -> None:
    """It is the cluster that knows, not whoever started it."""
    container: dict[str, object] = {"image": "localhost/workflow-controller:4.0.2"}
    if value is not None:
        container["env"] = [{"name": "ARGO_POD_STATUS_CAPTURE_FINALIZER", "value": value}]
    controller = {"spec": {"template": {"spec": {"containers": [container]}}}}
    assert described(controller, "abc", "1.34.4") == found


def test_runs_with_the_finalizer_are_not_mixed_with_others() -> None:
    """It is there to make recoveries other than they are without it."""
    runs = [Record(FIRST, HERE, 1.0, HELD, 20.0), Record(FIRST, CAPTURING, 2.0, HELD, 10.0)]
    assert of(runs, FIRST, HERE) == [runs[0]]
    assert of(runs, FIRST, CAPTURING) == [runs[1]]
    with_it, without = (page(SCENARIOS, runs, setting, 0.0, 2) for setting in (CAPTURING, HERE))
    assert "Argo Workflows 4.0.2 with its finalizer on pods" in with_it
    assert "Argo Workflows 4.0.2 without its finalizer on pods" in without
    assert "| 1 | 20.0 | 20.0 | held |" in without
    assert "| 1 | 10.0 | 10.0 | held |" in with_it
    assert "| held (at abc, Argo 4.0.2 with the finalizer) |" in page(SCENARIOS, runs[1:], HERE, 0.0, 2)


def test_runs_of_another_commit_do_not_count() -> None:
    """A change of the code makes all that was measured before it worth nothing for it."""
    runs = [Record(FIRST, EARLIER, 1.0, HELD), Record(FIRST, HERE, 2.0, FAILED), Record(SECOND, EARLIER, 3.0, HELD)]
    assert of(runs, FIRST, HERE) == [runs[1]]
    assert latest(runs, FIRST) == [runs[1]]
    assert latest(runs, SECOND) == [runs[2]]
    assert latest(runs, THIRD) == []


def test_the_page_tells_of_every_scenario_and_hides_no_failure() -> None:
    """Readers decide by this page whether they trust their jobs to the system."""
    runs = [
        Record(FIRST, HERE, 1.0, HELD, 20.0),
        Record(FIRST, HERE, 2.0, SLOW, 60.0),
        Record(FIRST, HERE, 3.0, HELD, 21.0),
        Record(SECOND, EARLIER, 1.0, HELD, 9.0),
        Record(THIRD, HERE, 1.0, FAILED, None, "the model | is another"),
    ]
    lines = page(SCENARIOS, runs, HERE, 0.0, 2).splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| fault")]
    assert len(rows) == len(SCENARIOS)
    first, second, third = (
        next(row for row in rows if row.startswith(f"| {scenario.what} |")) for scenario in SCENARIOS[:3]
    )
    assert first.endswith("| 3 | 21.0 | 60.0 | **too slow** |")
    assert second.endswith("| 1 | 9.0 | 9.0 | held (at old, Argo 4.0.2) |")
    assert third.endswith("| 1 |  |  | **failed**: the model \\| is another |")
    assert sum(row.endswith("| 0 |  |  | not run |") for row in rows) == len(SCENARIOS) - 3
    assert any(f"1 of {len(SCENARIOS)} held. {len(SCENARIOS) - 2} were not run" in line for line in lines)


def test_names_tell_scenarios_apart() -> None:
    """`--only` and the records go by name."""
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    assert {scenario.name for scenario in chosen(["helper"], gentle=False)} == {
        scenario.name for scenario in SCENARIOS if "helper" in scenario.name
    }
    assert not any(scenario.disturbs for scenario in chosen([], gentle=True))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_what_kills_a_component_is_not_gentle(scenario: object) -> None:
    """Who shares a cluster with others chooses `--gentle`, which must not take it from under them."""
    assert getattr(scenario, "disturbs") == (getattr(scenario, "counted") != "the fault")  # noqa: B009
