"""A tenant's configuration: what an administrator writes into the ConfigMap `ffdl-tenant`."""

from __future__ import annotations

import pytest

from ffdl.workflows.compile import compile_job
from ffdl.workflows.job import TrainingJob
from ffdl.workflows.site import Site, SiteError

CONFIG = {
    "version": "1",
    "registry": "registry.example.org:5000/team",
    "tag": "2",
    "host-paths": "/data/shared\n/srv\n",
    "ttl": "2h",
    "pod-ttl": "90s",
    "learners-non-root": "true",
    "of-a-later-version": "yes",
}


def job(**keys: object) -> TrainingJob:
    framework = {"name": "numpy", "version": "2", "command": "true"}
    return TrainingJob.from_arguments(name="j", framework=framework, **keys)


def test_everything_that_is_written_holds() -> None:
    """One ConfigMap is all that an administrator edits; no user has to repeat it."""
    site = Site.from_config(CONFIG)
    spec = compile_job(job(), site=site).workflow["spec"]
    learner = next(t for t in spec["templates"] if t["name"] == "learner")
    helper = next(t for t in spec["templates"] if t["name"] == "checkpoint")
    assert learner["container"]["image"] == "registry.example.org:5000/team/ffdl-learner-numpy:2"
    assert learner["initContainers"][0]["image"] == "registry.example.org:5000/team/ffdl-agent:2"
    assert helper["container"]["image"] == "registry.example.org:5000/team/ffdl-steps:2"
    assert spec["ttlStrategy"] == {"secondsAfterCompletion": 7200}
    assert spec["podGC"]["deleteDelayDuration"] == "90s"
    assert learner["securityContext"]["runAsNonRoot"] is True


def test_steps_have_no_rights_that_they_do_not_need() -> None:
    """A tenant's namespace may enforce the `restricted` standard for everything that is not a user's."""
    spec = compile_job(job(learners=2)).workflow["spec"]
    for template in spec["templates"]:
        if "container" not in template or template["name"] == "learner":
            continue
        context = template["container"]["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert template["securityContext"]["runAsUser"] == 65532


def test_host_paths_are_whole_folders() -> None:
    """/data/shared allows what is in it, not /data/shared-with-others."""
    site = Site.from_config(CONFIG)
    assert site.allows("/data/shared")
    assert site.allows("/data/shared/mnist")
    assert not site.allows("/data/shared-with-others")
    assert not site.allows("/data")
    assert not Site().allows("/data/shared")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("ttl", "soon", "ffdl-tenant: ttl is 'soon', not a duration; write one such as 7d or 5m"),
        ("learners-non-root", "yes", "ffdl-tenant: learners-non-root is 'yes'; write true or false"),
        ("version", "new", "ffdl-tenant: version is 'new', not a number; apply argo-config/tenant again"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: str, said: str) -> None:
    """A typing error of the administrator's is not a riddle for users."""
    with pytest.raises(SiteError) as error:
        Site.from_config({key: value})
    assert str(error.value) == said
