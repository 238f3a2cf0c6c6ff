"""Finding metrics in what a script prints, and the form in which they are kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ffdl.steps.metrics import Extractor, Metrics, from_step, to_json


def description(regex: str, **more: Any) -> dict[str, Any]:
    group = {
        "regex": regex,
        "etimes": {"iteration": {"type": "INT", "value": "$step"}},
        "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
    }
    return {"type": "regex_extractor", "groups": {"train": {**group, **more}}}


def run(extractor: Extractor, text: str) -> list[Metrics]:
    found = [metrics for line in text.splitlines() for metrics in extractor.feed(line)]
    return found + extractor.flush()


def test_every_line_that_matches_counts() -> None:
    """FfDL lost lines behind a match in the same window; a loss curve must have all of its points."""
    extractor = Extractor(description(r"step (?P<step>\d+) loss (?P<loss>\S+)"))
    found = run(extractor, "noise\n" + "".join(f"step {n} loss 0.{n}\n" for n in range(20)) + "noise")
    assert [metrics.step() for metrics in found] == list(range(20))
    assert found[7].numbers() == {"loss": 0.7}


def test_a_match_over_several_lines() -> None:
    """Frameworks print a step over more than one line; `line_lookahead` of them are looked at together."""
    extractor = Extractor({**description(r"step (?P<step>\d+)\n.*?loss=(?P<loss>%{FLOAT})"), "line_lookahead": 3})
    found = run(extractor, "x\nstep 1\nlr\nloss=1e-3\nstep 2\nloss=2.5\nstep 3\na\nb\nloss=9")
    assert [(metrics.step(), metrics.numbers()) for metrics in found] == [(1, {"loss": 0.001}), (2, {"loss": 2.5})]


def test_macros_of_the_examples() -> None:
    """FfDL's manifests write %{INT:name} and %{FLOAT:name}."""
    extractor = Extractor(description(r"%{TIMESTAMP} it %{INT:step}.*loss = %{FLOAT:loss}"))
    found = run(extractor, "2018-01-02T03:04:05Z it 40, loss = -1.5e-2 (x)")
    assert found == [Metrics("train", {"iteration": ("INT", "40")}, {"loss": ("FLOAT", "-1.5e-2")})]


def test_the_first_group_that_matches_wins_and_literals_stay() -> None:
    """As FfDL did: one record a hit, and a value that names no group is itself."""
    both = description(r"a (?P<step>\d)(?P<loss>)", values={"kind": {"type": "STRING", "value": "fixed"}})
    both["groups"]["test"] = {"regex": "a", "values": {}}
    assert [metrics.group for metrics in run(Extractor(both), "a 1\na x")] == ["train", "test"]
    assert run(Extractor(both), "a 1")[0].values == {"kind": ("STRING", "fixed")}


def test_a_regex_that_matches_nothing_is_no_endless_loop() -> None:
    """A careless regex like `.*` or `x*` must not hang the agent."""
    assert run(Extractor(description("x*")), "a\nb\nc") == []


@pytest.mark.parametrize(("regex", "said"), [("(", "group train"), ("%{NOPE:x}", "no pattern is called NOPE")])
def test_bad_regexes_are_named(regex: str, said: str) -> None:
    """The one who wrote it is told which, not shown a traceback."""
    with pytest.raises(ValueError, match="evaluation_metrics") as raised:
        Extractor(description(regex))
    assert said in str(raised.value)


def test_the_form_of_a_record() -> None:
    """Tools that read FfDL's evaluation-metrics.txt read ours."""
    line = to_json(from_step(3, {"loss": 0.5, "epoch": 2, "bad": "x"}), "training-x", "learner-2", 9, 1.5)
    assert line.endswith("\n")
    assert json.loads(line) == {
        "meta": {"training_id": "training-x", "time": 1500, "rindex": 9, "subid": "learner-2"},
        "grouplabel": "train",
        "etimes": {"iteration": {"type": "INT", "value": "3"}},
        "values": {"loss": {"type": "FLOAT", "value": "0.5"}, "epoch": {"type": "INT", "value": "2"}},
    }
