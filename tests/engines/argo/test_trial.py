"""What the trial asks a cluster for, and what it says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from ffdl.engines.argo import trial
from ffdl.engines.argo.access import Api, Object
from ffdl.workflows.site import Site


class Succeeding:
    """A cluster on which the Workflow of a trial has succeeded as soon as it is looked at."""

    namespace = "ffdl"

    def create(self, kind: str, body: Object) -> None:
        self.name = body["metadata"]["name"]

    def get(self, kind: str, name: str) -> Object:
        assert name == self.name
        nodes = {
            role: {"id": role, "type": "Pod", "templateName": role, "phase": "Succeeded"}
            for role in ("step", "learner")
        }
        return {"metadata": {"name": name}, "status": {"phase": "Succeeded", "nodes": nodes}}

    def delete(self, kind: str, name: str) -> None:
        assert name == self.name


def policies(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["imagePullPolicy"]] if "image" in value else [])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from policies(item)


@pytest.mark.parametrize(
    ("site", "policy", "of_one", "of_two"),
    [
        (Site(registry="r.example/ml"), "Always", "can be pulled and started", "can be pulled and started"),
        (Site(registry="r.example/ml", pull_policy="Never"), "Never", "starts", "start"),
        (Site(), "IfNotPresent", "starts", "start"),
    ],
)
def test_images_are_pulled_before_it_is_said_that_they_can_be(
    site: Site, policy: str, of_one: str, of_two: str
) -> None:
    """One that a node has by chance starts there, and on no other node if the registry can't be reached."""
    assert list(policies(trial.workflow("t", site))) == [policy] * 3
    findings = list(trial.check(cast(Api, Succeeding()), site, 1.0))
    images = [finding for finding in findings if "ffdl-" in finding.words]
    assert {finding.state for finding in images} == {"ok"}
    steps, learner = (finding.words for finding in images)
    assert steps == f"{site.image('ffdl-steps')} {of_one}"
    assert learner == f"{site.image('ffdl-agent')} and {site.image('ffdl-learner-numpy')} {of_two}"
