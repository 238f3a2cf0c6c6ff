"""What a learner's code may not have: the cluster's token, the store's credentials, another tenant's jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.kubernetes_api import Api, ApiError
from tests.behaviours.stores import store
from tests.behaviours.user import GATE
from tests.steps import s3 as servers

LOOK = """
env
cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'
ls -R /var/run/secrets /run/secrets 2>&1
echo "tokens: $(find / -xdev -path '*/kubernetes.io/*' 2>/dev/null | wc -l)"
cat /ffdl/*/* 2>/dev/null
touch "$JOB_STATE_DIR/looked"
"""


@pytest.mark.smoke
def test_a_learner_has_no_token_and_sees_no_credentials(
    user: ClusterUser, s3: servers.Server, buckets: tuple[Path, Path]
) -> None:
    """Code from anywhere runs there: it must not be able to speak for the user, to the cluster or to the store."""
    data, results = buckets
    (data / "x").write_text("x")
    job = user.train(user.command(LOOK + GATE, **store(s3.endpoint, data.name, results.name)))
    user.wait_for(lambda: (user.volume(job) / "job/looked").exists(), "the script's look", 60)
    (pod,) = user.alive(job, "learner")
    main = next(container for container in pod["spec"]["containers"] if container["name"] == "main")
    assert not [mount for mount in main["volumeMounts"] if "serviceaccount" in mount["mountPath"]]
    mounted = {mount["name"] for mount in main["volumeMounts"]}
    assert "store-credentials" not in mounted
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    said = user.ffdl("logs", job).stdout
    assert "JOB_STATE_DIR" in said
    assert "tokens: 0\n" in said
    assert "eyJ" not in said, "a token of the cluster's begins so"
    shown = "".join(user.ffdl(verb, job).stdout for verb in ("show", "events", "metrics"))
    for text in (said, shown, user.ffdl("show", job, "--workflow").stdout, user.record(job)):
        assert servers.SECRET not in text


def test_another_tenants_jobs(user: ClusterUser, neighbour: ClusterUser) -> None:
    """Two teams on one cluster: with one's credentials nothing of the other's can be seen, read or halted."""
    secret = "what-they-compute"
    job = neighbour.train(neighbour.command(f"echo {secret}; {GATE}"))
    neighbour.until(job, lambda status: status.state == "PROCESSING")
    there = neighbour.tenant.namespace
    for verb in (
        ["list"], ["status", job], ["show", job], ["logs", job], ["events", job], ["metrics", job], ["halt", job],
        ["stop", job], ["delete", "-y", job], ["download", job], ["resubmit", job],
    ):  # fmt: skip
        done = user.ffdl(*verb, "-n", there, code=4)
        assert secret not in done.stdout
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert there in done.stderr, done.stderr
    done = user.ffdl("train", str(user.command("true") / "manifest.yml"), "-n", there, code=4)
    mine = Api(user.tenant.kubeconfig, there)
    for kind in ("workflows", "pods", "configmaps", "secrets", "events", "persistentvolumeclaims"):
        with pytest.raises(ApiError) as refused:
            mine.list(kind)
        assert refused.value.status == 403
    with pytest.raises(ApiError) as refused:
        mine.patch("workflows", job, {"spec": {"suspend": True}})
    assert refused.value.status == 403
    assert neighbour.ffdl("status", job).stdout.strip() == "PROCESSING"
    neighbour.open_gate(job)
    assert neighbour.until_over(job).state == "COMPLETED", neighbour.story()


def test_files_of_root_that_nobody_else_may_read_are_stored(user: ClusterUser) -> None:
    """Images run as root and scripts set umasks; what stores the results does not run as root."""
    script = 'id -u > "$RESULT_DIR/who"; umask 077; echo mine > "$RESULT_DIR/mine"; mkdir "$RESULT_DIR/of mine"; '
    script += 'echo deep > "$RESULT_DIR/of mine/deep"; echo log > "$LOG_DIR/own.log"'
    job = user.train(user.command(script))
    assert user.until_over(job).state == "COMPLETED", user.story()
    stored = user.results(job)
    assert (stored / "who").read_text() == "0\n", "the image runs as root"
    assert (stored / "mine").read_text() == "mine\n"
    assert (stored / "of mine" / "deep").read_text() == "deep\n"
    assert [path.read_text() for path in stored.rglob("own.log")] == ["log\n"]


def test_the_helpers_token_is_read_by_no_link(user: ClusterUser) -> None:
    """What ships and stores a learner's files holds a token; a link among them must not carry it out."""
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    script = f'cd "$LOG_DIR/learner-1" && rm -f training-log.txt && ln -s {token} training-log.txt; '
    script += (
        f'ln -s {token} "$RESULT_DIR/token"; ln -s {token} "$CHECKPOINT_DIR/token"; ln -s {token} "$LOG_DIR/token"; '
    )
    script += "exit 3"  # stored by the step that has one too
    job = user.train(user.command(script))
    user.failed(job)
    stored = [path for path in user.results(job).rglob("*") if path.is_file()]
    assert not [path for path in stored if b"eyJ" in path.read_bytes()]
    assert "eyJ" not in user.ffdl("logs", job).stdout


def test_a_host_mount_that_the_tenant_does_not_list(user: ClusterUser) -> None:
    """A folder of the node is everybody's: said at submit, with what the administrator may do."""
    connection = {"type": "host_mount", "path": "/etc"}
    stores = [{"id": "x", "type": "mount_volume", "training_data": {"container": "ssl"}, "connection": connection}]
    folder = user.command("true", data_stores=stores)
    done = user.ffdl("train", str(folder / "manifest.yml"), code=2)
    assert "/etc/ssl" in done.stderr
    assert "host-paths" in done.stderr
    assert json.loads(user.ffdl("list", "-o", "json").stdout) == []
