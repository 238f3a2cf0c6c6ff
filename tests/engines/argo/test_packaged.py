"""How a cluster is compared with argo-config, and what it is told to change. Values in, words out."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ffdl.engines.argo import controller_check, packaged
from ffdl.engines.argo.tenant_check import config


def test_what_an_administrator_added_is_no_difference() -> None:
    """Clusters fill in defaults and have fields of their own."""
    wanted = {"env": [{"name": "A", "value": "1"}], "verbs": ["get", "list"], "n": {"x": "8"}}
    found = {
        "env": [{"name": "Z", "value": "9"}, {"name": "A", "value": "1", "more": True}],
        "verbs": ["list", "watch", "get"], "n": {"x": 8, "y": 1}, "status": {},
    }  # fmt: skip
    assert list(packaged.differences(wanted, found)) == []


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        ({"a": {"b": "1"}}, {"a": {"b": "2"}}, "a.b is 2, wanted 1"),
        ({"a": {"b": "1"}}, {"a": None}, "a is missing, wanted {'b': '1'}"),
        ({"a": ["x", "y"]}, {"a": ["y"]}, "a lacks x"),
        ({"e": [{"name": "A", "v": "1"}]}, {"e": [{"name": "A", "v": "2"}]}, "e[A].v is 2, wanted 1"),
        ({"e": [{"name": "A", "v": "1"}]}, {"e": []}, "e[A] is missing, wanted {'name': 'A', 'v': '1'}"),
        ({"p": [{"port": 53}]}, {"p": [{"port": 54}]}, "p[0].port is 54, wanted 53"),
        ({"p": [{"port": 53}]}, {"p": [{"port": 53}, {"port": 1}]}, "p has 2 entries, wanted 1"),
    ],
)
def test_a_difference_is_named_by_its_place(wanted: Any, found: Any, said: str) -> None:
    """Whoever has to mend it must find it."""
    assert list(packaged.differences(wanted, found)) == [said]


def test_the_controllers_settings_are_read_in_both_forms() -> None:
    """Argo takes a key each or one key `config`; half the installations have this, half that."""
    apart = {"nodeEvents": "enabled: true\n", "parallelism": "10"}
    assert controller_check.settings(apart) == {"nodeEvents": {"enabled": True}, "parallelism": 10}
    assert controller_check.settings({"config": "parallelism: 10\n"}) == {"parallelism": 10}
    assert controller_check.settings({"config": ""}) == {}


def test_settings_in_one_key_are_told_merged_and_never_overwritten() -> None:
    """A second key beside `config` stops the controller from starting: the command must not be offered there."""
    theirs = "parallelism: 7\nexecutor:\n  env:\n  - {name: MINE, value: x}\n  resources: {limits: {cpu: 1}}\n"
    wants = controller_check.settings(packaged.objects(packaged.CONTROLLER)[0]["data"])
    has = controller_check.settings({"config": theirs})
    told = controller_check.remedy({"config": theirs}, has, wants)
    assert "kubectl" not in told
    assert "kubectl" not in controller_check.remedy({"config": "parallelism: 7"}, {"parallelism": 7}, wants)
    merged = yaml.safe_load(told.partition(":\n")[2])
    assert list(packaged.differences(wants, merged)) == []
    assert merged["parallelism"] == 7
    assert {"name": "MINE", "value": "x"} in merged["executor"]["env"]
    assert merged["executor"]["resources"]["limits"] == {"cpu": 1}


def test_a_key_that_is_somebody_elses_is_told_merged() -> None:
    """Server-side apply would report a conflict, or take their settings away."""
    wants = controller_check.settings(packaged.objects(packaged.CONTROLLER)[0]["data"])
    free = controller_check.remedy({"parallelism": "7"}, {"parallelism": 7}, wants)
    assert free == packaged.apply_command(packaged.CONTROLLER)
    data = {"executor": "imagePullPolicy: Always\n"}
    told = controller_check.remedy(data, controller_check.settings(data), wants)
    merged = yaml.safe_load(told.partition(":\n")[2])
    assert merged["executor"]["imagePullPolicy"] == "Always"
    assert set(merged) == set(wants)


@pytest.mark.parametrize(
    ("data", "words", "remedy"),
    [
        ({"version": "1"}, None, ""),
        ({"version": "2"}, "version 2, this ffdl knows 1", "upgrade ffdl"),
        ({"version": "0"}, "version 0, this ffdl has 1", "apply it"),
        ({"version": "one"}, "is 'one', not a number", ""),
        ({"version": "1", "ttl": "soon"}, "ttl is 'soon', not a duration", ""),
    ],
)
def test_settings_of_another_version_say_what_to_do(data: dict[str, str], words: str | None, remedy: str) -> None:
    """An older argo-config under a newer ffdl, or the other way round, is told in a line."""
    findings = list(config(data, "apply it"))
    assert len(findings) == (words is not None)
    for finding in findings:
        assert finding.state == "problem"
        assert words is not None
        assert words in finding.words
        assert remedy in finding.remedy
