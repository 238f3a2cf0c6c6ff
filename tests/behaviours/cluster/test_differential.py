"""Workflows that nobody has seen before, on the real Argo and on the embedded engine."""

from __future__ import annotations

import random
from pathlib import Path

from tests.differential import argo, embedded, known, replay, trees
from tests.differential.grammar import generate
from tests.differential.record import Record

FRESH = 6


def test_fresh_workflows_become_the_same_on_both_engines(tmp_path: Path) -> None:
    """Made at random, run by Argo and by the embedded engine; and replayed to its controller in Argo's order."""
    seed = random.randrange(1 << 20)
    print(f"python -m tests.differential --seed {seed} --count {FRESH}")
    cases = {case.name: case for case in (generate(seed + i) for i in range(FRESH))}
    records: list[Record] = []
    with argo.namespace() as api:
        argo.run(api, cases.values(), lambda record, seconds: records.append(record))
    assert sorted(record.name for record in records) == sorted(cases)
    trees_here = {case.name: trees.tree(one) for case, one in embedded.run(cases.values(), tmp_path / "home")}
    for record in records:
        for differences in (replay.differences(record), trees.compare(record.tree, trees_here[record.name])):
            unexplained, _ = known.split(record.name, differences)
            assert not unexplained, "\n".join([record.name, *map(str, unexplained)])
