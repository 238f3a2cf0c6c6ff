"""Which cluster, as whom, in which namespace: as kubectl finds them, for that is what users know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.engines.argo import connection
from ffdl.engines.argo.connection import connect
from ffdl.engines.base import EngineError


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster of the machine's own is found."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def config(folder: Path, name: str, current: str | None = None, **contexts: str | None) -> Path:
    """A kubeconfig with a cluster for each context, whose namespace is the value."""
    entries: list[Any] = []
    for context, namespace in contexts.items():
        about = {"cluster": f"c-{context}", "user": f"u-{context}"} | ({"namespace": namespace} if namespace else {})
        entries.append({"name": context, "context": about})
    values = {
        "clusters": [{"name": f"c-{c}", "cluster": {"server": f"https://{c}.example:6443"}} for c in contexts],
        "users": [{"name": f"u-{c}", "user": {"token": f"token-{c}"}} for c in contexts],
        "contexts": entries,
    } | ({"current-context": current} if current else {})
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(values))
    return file


def test_the_current_context_of_the_home_folder_is_the_default(tmp_path: Path) -> None:
    """What `kubectl get pods` speaks to is what `ffdl` speaks to."""
    config(tmp_path, ".kube/config", "b", a="one", b="two")
    found = connect()
    assert (found.configuration.host, found.namespace) == ("https://b.example:6443", "two")
    assert found.place == "https://b.example:6443 (context b)"


def test_a_context_and_a_namespace_may_be_named(tmp_path: Path) -> None:
    """One command for another team's namespace must not change what the next one means."""
    config(tmp_path, ".kube/config", "b", a="one", b=None)
    assert connect().namespace == "default"
    assert connect(context="a").namespace == "one"
    assert connect(context="a", namespace="three").namespace == "three"


def test_several_files_are_one_and_the_first_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People keep a file a cluster in KUBECONFIG; missing ones are passed over."""
    first, second = config(tmp_path, "1", "a", a="one"), config(tmp_path, "2", "b", b="two")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{first}:{second}")
    assert connect().namespace == "one"
    assert connect(context="b").namespace == "two"
    assert connect(kubeconfig=str(second)).namespace == "two"


def test_certificates_beside_a_file_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative names in a kubeconfig are relative to it, not to where the user stands."""
    file = config(tmp_path, "keys/config", "a", a=None)
    values = yaml.safe_load(file.read_text())
    values["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    file.write_text(yaml.safe_dump(values))
    (tmp_path / "keys" / "ca.crt").write_text("a certificate")
    monkeypatch.chdir("/")
    assert connect(kubeconfig=str(file)).configuration.ssl_ca_cert == str(tmp_path / "keys" / "ca.crt")


def test_a_pod_uses_its_own_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a pipeline submits jobs with nothing configured; its namespace is the pod's."""
    for name, text in (("token", "t"), ("ca.crt", "c"), ("namespace", "team\n")):
        (tmp_path / name).write_text(text)
    from kubernetes.config import incluster_config

    monkeypatch.setattr(connection, "IN_CLUSTER", str(tmp_path))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(
        incluster_config.InClusterConfigLoader.__init__, "__defaults__", (True, {**connection.os.environ} | IN_POD)
    )
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = connect()
    assert (found.configuration.host, found.namespace) == ("https://10.0.0.1:443", "team")
    assert connect(namespace="other").namespace == "other"


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_what_is_wrong_is_one_line_that_says_where(tmp_path: Path) -> None:
    """Before anything is sent anywhere."""
    for problem, call in (
        ("no cluster is configured: there is no kubeconfig file (looked for ~/.kube/config)", {}),
        ("there is no kubeconfig file elsewhere", {"kubeconfig": "elsewhere"}),
        ("no context is called 'x': there is no kubeconfig file", {"context": "x"}),
    ):
        with pytest.raises(EngineError) as raised:
            connect(**call)
        assert problem in str(raised.value)
        assert raised.value.exit_code == 4
    file = tmp_path / "config"
    for text, problem in (
        ("a: [", f"{file}: not YAML: "),
        ("just words", f"{file}: "),
        ("", f"{file}: "),
        ("contexts: [{name: a, context: {cluster: c}}]", f"{file}: no current context; choose one with --context: "),
        ("current-context: b\ncontexts: []", f"{file}: no context is called 'b'; there is none"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: []", f"{file}: "),
    ):
        file.write_text(text)
        with pytest.raises(EngineError) as raised:
            connect(kubeconfig=str(file))
        assert str(raised.value).startswith(problem)
        assert "\n" not in str(raised.value)


def test_a_credential_plugin_that_fails_says_why(tmp_path: Path) -> None:
    """`gcloud`, `aws` and others print what to do; without it there is only a 401 later."""
    file = config(tmp_path, "config", "a", a=None)
    values = yaml.safe_load(file.read_text())
    program = {"command": "sh", "args": ["-c", "echo 'log in first' >&2; exit 3"]}
    values["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **program}}
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(EngineError, match=r"no credentials: .*log in first"):
        connect(kubeconfig=str(file))
