"""What the differential test stands on: the comparison sees what differs, the grammar makes what both accept."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ffdl.engines.local.operator import invalid, unsupported
from tests.differential import trees
from tests.differential.grammar import generate
from tests.differential.record import Record, news_of_pods
from tests.differential.replay import play


def workflow(**node: Any) -> dict[str, Any]:
    """A Workflow `wf` whose root has the child `a`, a pod."""
    root = {"id": "wf", "name": "wf", "displayName": "wf", "type": "Steps", "phase": "Succeeded", "children": ["wf-1"]}
    child = {"id": "wf-1", "name": "wf[0].a", "displayName": "a", "type": "Pod", "phase": "Failed", **node}
    status = {"phase": "Failed", "startedAt": "2026-01-01T00:00:00Z", "nodes": {"wf": root, "wf-1": child}}
    return {"metadata": {"name": "wf", "uid": "u-1"}, "spec": {}, "status": status}


def changed(**node: Any) -> list[trees.Difference]:
    message = "main: Error (exit code 1)"
    return trees.compare(trees.tree(workflow(message=message)), trees.tree(workflow(**{"message": message, **node})))


def test_what_differs_between_any_two_runs_is_no_difference() -> None:
    """Times, resources, hosts, addresses and ids that a cluster gives."""
    one = workflow(startedAt="2026-01-01T00:00:00Z", message="2026-01-01T00:00:00Z u-1 10.0.0.7:80", hostNodeName="n")
    other = workflow(startedAt="2026-02-02T00:00:00Z", message="2026-03-03 01:02:03 +0000 UTC u-2 127.0.16.2:80")
    other["metadata"]["uid"] = "u-2"
    assert trees.compare(trees.tree(one), trees.tree(other)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("phase", "Error"),
        ("message", "main: Error (exit code 2)"),
        ("type", "Skipped"),
        ("displayName", "b"),
        ("id", "wf-2"),
        ("children", ["wf"]),
        ("boundaryID", "wf"),
        ("outputs", {"exitCode": "1"}),
    ],
)
def test_every_field_of_a_node_counts(field: str, value: Any) -> None:
    (found,) = changed(**{field: value})
    assert (found.node, found.field) == ("[0].a", field)


def test_a_node_of_one_side_alone_is_one_difference() -> None:
    other = workflow(message="main: Error (exit code 1)")
    del other["status"]["nodes"]["wf-1"]
    other["status"]["nodes"]["wf"]["children"] = []
    found = trees.compare(trees.tree(workflow(message="m")), trees.tree(other))
    assert [(one.node, one.field) for one in found] == [("", "children"), ("[0].a", "")]
    assert "node [0].a\n    argo  Pod Failed: m\n    here  -" in str(found[1])


def test_the_grammar_repeats_itself_and_makes_valid_workflows() -> None:
    """The same seed, the same Workflow; and none that the embedded engine would refuse."""
    for seed in range(300):
        case = generate(seed)
        assert case.digest == generate(seed).digest
        assert unsupported(case.workflow) == []
        assert [str(problem) for problem in invalid(case.workflow)] == []


def test_pods_end_as_recorded() -> None:
    """A replay gives each pod the end it had, in the order in which Argo saw it, and says what was never started."""
    case = generate(3)
    before = copy.deepcopy(case.workflow)
    node = {"type": "Pod", "phase": "Failed", "message": "m", "finishedAt": "2026-01-01T00:00:09Z"}
    events = [{"at": 9.0, "pods": news_of_pods({}, {"nodes": {"x-1": node}}, 1767225600.0)}]
    played = play(Record("", case.workflow, [], events, {"startedAt": "2026-01-01T00:00:00Z"}))
    assert events[0]["pods"]["x-1"] == {"phase": "Failed", "message": "m", "at": 9.0}
    assert played.problems == ["x-1 ended on Argo, and was never started here"]
    assert case.workflow == before


def test_how_a_daemon_is_ended_is_no_news_of_its_pod() -> None:
    """That it is up is; and that it failed by itself."""
    up = {"nodes": {"x": {"type": "Pod", "phase": "Running", "daemoned": True, "podIP": "10.0.0.7"}}}
    assert news_of_pods({}, up, 0.0) == {"x": {"phase": "Running", "ip": "10.0.0.7"}}
    for phase, news in (("Succeeded", {}), ("Failed", {"x": {"phase": "Failed", "message": ""}})):
        found = news_of_pods(up, {"nodes": {"x": {"type": "Pod", "phase": phase}}}, 0.0)
        assert {key: {k: seen[k] for k in ("phase", "message")} for key, seen in found.items()} == news


def test_a_workflow_that_still_has_pods_is_no_record() -> None:
    """Only one whose pods have all ended can be said never to end."""
    for phase, short in (("Pending", True), ("Running", True), ("Failed", False)):
        nodes = {"x": {"type": "Pod", "phase": phase}, "wf": {"type": "DAG", "phase": "Running"}}
        assert Record("", {}, status={"nodes": nodes}, ended=False).cut_short is short
