"""What the programs in benchmarks/ say of their measurements, and when they exit with 1."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """The benchmark of that name, called without arguments."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [request.param])
    return importlib.import_module(request.param)


@pytest.mark.parametrize("program", ["collectives"], indirect=True)
@pytest.mark.parametrize(
    ("mib", "ratio", "cpu", "missed"),
    [(16, 9.0, 1.0, ""), (16, 9.0, 1.01, "CPU above 1.0"), (1, 9.0, 1.01, ""), (64, 1.1, 0.5, "below 1.6")],
)
def test_a_collective_is_to_be_fast_and_to_take_no_more_processor_time_than_gloo(
    program: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mib: int,
    ratio: float,
    cpu: float,
    missed: str,
) -> None:
    """A time that is bought with twice the processor is missing where learners compute meanwhile."""
    sys.argv += ["--learners", "2", "--mib", str(mib)]
    monkeypatch.setattr(program, "with_torch", lambda: "python")
    monkeypatch.setattr(program, "measured", lambda *_: [("tcp", [ratio] * 7, 20.0, cpu)])
    assert program.main() == (1 if missed else 0)
    said = capsys.readouterr().out
    assert missed in said
    assert bool(missed) == ("below" in said or "above" in said)


@pytest.mark.parametrize("program", ["solvers"], indirect=True)
def test_solvers_are_compared_by_medians_of_seven_launches_with_least_and_most(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One number says nothing of how sure it is."""
    launches: dict[str, int] = {}

    def launched(_: str, learners: int, servers: int, mode: str, seconds: float) -> dict[str, Any]:
        launch = launches[mode] = launches.get(mode, 0) + 1
        curve = [(0.0, 0.1), (launch, 0.92), (launch + 10, 0.955 + launch / 1000)]
        return {"curve": curve + [(20.0, 0.98)] * (launch < 3), "steps": 100 * launch}

    monkeypatch.setattr(program, "launched", launched)
    assert program.main() == 0
    assert set(launches.values()) == {7}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(program.WAYS)
    for line in lines[1:]:
        assert " ".join(line.split()[1:]) == (
            "4.0 s (1.0 - 7.0) 14.0 s (11.0 - 17.0) never (20.0 - never) 96.1% (95.8 - 98.0) 400 (100 - 700)"
        )
