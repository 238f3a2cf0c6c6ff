"""The embedded engine against what a real Argo 4.0.2 did with the same Workflows, as it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential import embedded, known, record, replay, trees
from tests.differential.case import Case, written
from tests.differential.grammar import generate

RECORDS = record.all_recorded()
PLAYABLE = sorted(name for name, one in RECORDS.items() if not replay.refused(one))
# Of each kind of Workflow a few, with real processes.
WHOLE = (
    "depends-failed", "depends-on-nested", "loops-outputs-objects", "loops-param-of-task", "retries-last-retry",
    "retries-of-steps", "when-recursion", "exit-after-failure", "limits-parallelism-loop", "parameters-dag-outputs",
    "steps-exit-codes", "pods-signals", "pods-env", "continue-steps-loop", "references-task", "references-whole",
    "suspended-supplied", "hooks-exit-of-failed-task", "artifacts-handed-on", "script-with-param", "daemons-ip",
    "pods-set",
    *(f"random-{seed}" for seed in range(0, 100, 8)),
)  # fmt: skip


def story(differences: list[trees.Difference]) -> str:
    return "\n".join(map(str, differences))


@pytest.mark.parametrize("name", PLAYABLE)
def test_the_controller_does_what_argo_did(name: str) -> None:
    """Given pods that end as Argo's did, in their order, every node is Argo's: name, type, phase, children, message."""
    unexplained, _ = known.split(name, replay.differences(RECORDS[name]))
    assert not unexplained, story(unexplained)


def test_every_known_difference_is_there_and_documented() -> None:
    """A difference that is gone is no difference any more; one that nobody can read about is a bug."""
    used = {one for name in PLAYABLE for one in known.split(name, replay.differences(RECORDS[name]))[1]}
    assert used == set(known.known())
    text = known.DOCUMENT.read_text()
    assert [one.why for one in known.known() if one.why not in text] == []


def test_everything_written_is_recorded() -> None:
    """A Workflow that was added or changed has to be run on Argo: python -m tests.differential --only NAME --keep."""
    if not RECORDS:
        pytest.skip("needs what a real Argo did, which is not recorded yet: python -m tests.differential --keep")
    recorded = {one.digest for one in RECORDS.values()}
    assert [case.name for case in written() if case.digest not in recorded] == []
    assert len(RECORDS) >= 200


@pytest.mark.parametrize("name", [name for name in WHOLE if name in PLAYABLE])
def test_the_whole_engine_does_what_argo_did(name: str, tmp_path: Path) -> None:
    """With real processes, and in the order in which they happen to end."""
    ((case, workflow),) = embedded.run([find(name)], tmp_path / "home", timeout=200.0)
    unexplained, _ = known.split(case.name, trees.compare(RECORDS[name].tree, trees.tree(workflow)))
    assert not unexplained, story(unexplained)


def find(name: str) -> Case:
    if name.startswith("random-"):
        return generate(int(name.removeprefix("random-")))
    return next(case for case in written() if case.name == name)
