"""What is said of a controller, by its version: each has settings that another does not start with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ffdl.engines.argo import controller_check, packaged
from ffdl.engines.argo.access import Api, Object
from ffdl.engines.argo.looking import Unseen, path_of
from ffdl.engines.finding import Finding

IMAGE = "quay.io/argoproj/workflow-controller"
FOLDERS = {"4.0.2": "controller", "3.7.6": "controller-3.7"}
SERVED = {"/apis/argoproj.io/v1alpha1": {"resources": [{"name": name} for name in controller_check.NEEDED]}}


def objects(folder: str, image: str) -> list[Object]:
    """A cluster's, after exactly that folder was applied to it."""
    config, deployment = packaged.objects(folder, "argo")
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return [config, {**deployment, "status": {"availableReplicas": 1}}]


def found(monkeypatch: pytest.MonkeyPatch, there: list[Object], hidden: str = "") -> list[Finding]:
    """`hidden` is a kind that these credentials may not read."""
    answers: dict[str, Any] = {**SERVED, **{path_of(value): value for value in there}}

    def look(api: Api, path: str) -> Any:
        if hidden and hidden in path:
            raise Unseen(path)
        return answers.get(path)

    monkeypatch.setattr(controller_check, "look", look)
    return list(controller_check.check(cast(Api, SimpleNamespace(namespace="ffdl")), "argo"))


@pytest.mark.parametrize(("version", "folder"), FOLDERS.items())
@pytest.mark.parametrize("rest", ["", "-rc1", "@sha256:0123abcd"])
def test_each_version_is_held_against_its_own_folder(
    monkeypatch: pytest.MonkeyPatch, version: str, folder: str, rest: str
) -> None:
    """What is missing for 4.0 would stop a 3.7 controller, if its administrator did as told."""
    findings = found(monkeypatch, objects(folder, f"{IMAGE}:v{version}{rest}"))
    assert [finding for finding in findings if finding.state == "problem"] == []
    assert sum(f"as argo-config/{folder} has" in finding.words for finding in findings) == 2


@pytest.mark.parametrize(("version", "folder"), FOLDERS.items())
def test_the_remedy_is_to_apply_that_folder(monkeypatch: pytest.MonkeyPatch, version: str, folder: str) -> None:
    """A setting that this version does not know must not come with it."""
    config, deployment = objects(folder, f"{IMAGE}:{version}")
    config["data"], deployment["spec"]["template"]["spec"]["containers"][0]["env"] = {}, []
    problems = [finding for finding in found(monkeypatch, [config, deployment]) if finding.state == "problem"]
    assert [problem.remedy for problem in problems] == [packaged.apply_command(folder)] * 2
    assert ("failedPodRestart" in problems[0].words) == (folder == "controller")


def test_settings_of_a_later_version_are_named_where_they_stop_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that Kubernetes says is that the pod ends again and again."""
    config, deployment = objects("controller", f"{IMAGE}:v3.7.6")
    problems = [f for f in found(monkeypatch, [config, {**deployment, "status": {}}]) if f.state == "problem"]
    assert "Argo before 4.0 does not start with failedPodRestart" in problems[0].words
    assert "does not run" in problems[1].words


@pytest.mark.parametrize(
    ("version", "state", "said"),
    [
        ("4.0.2", "ok", "the controller runs"),
        ("3.7.6", "note", "is Argo 3.7.6; ffdl is tried on 4.0, and on 3.7 for one job and its halt"),
        ("3.6.0", "note", "is Argo 3.6.0; ffdl is tried on 4.0, and on 3.7 for one job and its halt"),
        ("latest", "note", "whose tag names no version; it is taken for Argo 4.0"),
    ],
)
def test_what_is_tried_of_a_version_is_said(
    monkeypatch: pytest.MonkeyPatch, version: str, state: str, said: str
) -> None:
    """As the README says it, no more and no less."""
    findings = found(monkeypatch, objects("controller", f"{IMAGE}:{version}"))
    assert [finding.state for finding in findings if said in finding.words] == [state]


def test_a_controller_that_may_not_be_seen_is_taken_for_the_tried_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may read its settings alone is told what their advice is for."""
    findings = found(monkeypatch, objects("controller-3.7", f"{IMAGE}:v3.7.6"), hidden="deployments")
    unseen = [finding.words for finding in findings if finding.state == "unseen"]
    assert any("it is taken for Argo 4.0" in words for words in unseen), unseen
