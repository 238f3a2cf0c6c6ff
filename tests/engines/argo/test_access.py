"""Calls to an API server that refuses, fails, is busy or is not there: one clear line each, and no call without end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.engines.argo import access
from ffdl.engines.argo.access import CONFIG_MAPS, PODS, SECRETS, WORKFLOWS, Api
from ffdl.engines.argo.connection import connect
from ffdl.engines.argo.errors import ApiError, Unreachable
from ffdl.engines.base import EngineError
from tests.steps.api_server import ApiServer, Handler

FORBIDDEN = (
    'workflows.argoproj.io is forbidden: User "alice" cannot list resource "workflows" in API group "argoproj.io" '
    'in the namespace "ns"'
)
QUOTA = 'pods "p" is forbidden: exceeded quota: team, requested: pods=1, used: pods=9, limited: pods=9'


def refuse(status: int, reason: str = "", message: str = "", **headers: str) -> Callable[[Handler], None]:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return lambda handler: handler.answer(status, body, **headers)


def plain(status: int, text: bytes) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    return answer


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (refuse(401, "Unauthorized"), "does not accept your credentials; log in to the cluster again"),
        (
            refuse(403, "Forbidden", FORBIDDEN),
            "alice may not list workflows in namespace ns; ask for the Role ffdl-user there, or name another "
            "namespace with -n",
        ),
        (refuse(403, "Forbidden", QUOTA), f"the cluster forbids to list workflows in namespace ns: {QUOTA}"),
        (plain(404, b"404 page not found\n"), "has no Argo Workflows; `ffdl doctor` says what a cluster needs"),
        (refuse(404, "NotFound", 'namespaces "ns" not found'), "has no namespace ns; name another one with -n"),
        (refuse(409, "Conflict", "it has changed"), "could not list workflows in namespace ns: it has changed"),
        (refuse(422, "Invalid", "spec.x: Invalid value"), "the cluster does not take it: could not list workflows"),
        (refuse(400, "BadRequest", "no"), "the cluster does not take it: could not list workflows in namespace ns: no"),
        (refuse(418, "Teapot", "short and stout"), "short and stout (HTTP 418)"),
    ],
)
def test_a_refusal_is_one_line(server: ApiServer, api: Api, how: Callable[[Handler], None], words: str) -> None:
    """The person at the terminal must know what to do without a stack of client code."""
    server.fail("list", "workflows", how)
    with pytest.raises(ApiError) as raised:
        list(api.list(WORKFLOWS))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 4
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(server: ApiServer, api: Api, status: int) -> None:
    """A server that restarts, or has many to serve, is no reason for a failed command."""
    server.put("pods", {"metadata": {"name": "p"}})
    for _ in range(3):
        server.fail("get", "pods", refuse(status))
    assert api.get(PODS, "p")["metadata"]["name"] == "p"


def test_a_creation_is_not_repeated_after_a_fault(server: ApiServer, api: Api) -> None:
    """It may have been carried out; but one that was turned away as too many was not."""
    server.fail("create", "configmaps", refuse(500, message="etcd has no leader"))
    with pytest.raises(ApiError, match=r"has a fault \(HTTP 500\) and could not create ConfigMap c .*no leader"):
        api.create(CONFIG_MAPS, {"metadata": {"name": "c"}})
    server.fail("create", "configmaps", refuse(429))
    api.create(CONFIG_MAPS, {"metadata": {"name": "c"}})


def test_a_server_that_says_when_is_not_asked_before(server: ApiServer, api: Api) -> None:
    """Retry-After is how a cluster keeps its clients from making things worse."""
    server.put("pods", {"metadata": {"name": "p"}})
    server.fail("get", "pods", refuse(429, Retry_After="1"))
    began = time.monotonic()
    api.get(PODS, "p")
    assert 0.9 <= time.monotonic() - began < 3


def test_asking_again_has_an_end(server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command must not hang for ever on a cluster that is down."""
    monkeypatch.setattr(access, "PATIENCE", 0.5)
    for _ in range(20):
        server.fail("get", "pods", refuse(429))
    with pytest.raises(ApiError, match="is too busy to get Pod p in namespace ns; try again later"):
        api.get(PODS, "p")
    server.fail("get", "configmaps", refuse(429, Retry_After="3600"))
    with pytest.raises(ApiError, match="too busy"):
        api.get(CONFIG_MAPS, "c")


def test_a_server_that_says_nothing_is_not_waited_for(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung control plane looks like an endless command otherwise."""
    monkeypatch.setattr(access, "READ_TIMEOUT", 0.3)
    monkeypatch.setattr(Api.open, "__defaults__", (None, None, None, 0.3))
    for _ in range(3):
        server.fail("get", "pods", lambda handler: time.sleep(2))
    with pytest.raises(Unreachable, match=r"did not answer within 0.3 s"):
        api.get(PODS, "p")


def test_no_server_no_name_and_no_trust(server: ApiServer, kubeconfig: Path, tmp_path: Path) -> None:
    """Each asks for something else: start the cluster, correct the kubeconfig, get the right certificate."""

    def said(**cluster: Any) -> str:
        values = yaml.safe_load(kubeconfig.read_text())
        values["clusters"][0]["cluster"].update(cluster)
        (tmp_path / "changed").write_text(yaml.safe_dump(values))
        with pytest.raises(Unreachable) as raised:
            Api(connect(kubeconfig=str(tmp_path / "changed"))).get(PODS, "p")
        assert raised.value.exit_code == 4
        return str(raised.value)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "can't be reached: connection refused; does the cluster run?" in said(server=f"https://127.0.0.1:{port}")
    assert "can't be reached: its name is not known" in said(server="https://cluster.invalid:6443")
    (tmp_path / "other").mkdir()
    other = ApiServer(tmp_path / "other")
    other.stop()
    assert "can't be trusted: TLS: certificate verify failed: self-signed certificate" in said(
        **{"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(other.folder / "ca.crt")}
    )
    assert "can't be trusted: TLS" in said(
        **{"server": f"https://127.0.0.1:{server.port}", "tls-server-name": "another.example"}
        | {"certificate-authority": str(server.folder / "ca.crt")}
    )


def test_a_connection_closed_meanwhile_is_replaced(server: ApiServer, api: Api) -> None:
    """Load balancers close what is idle; a command that follows a job for hours goes on."""
    server.put("pods", {"metadata": {"name": "p"}})
    api.get(PODS, "p")
    server.cut()
    assert api.get(PODS, "p")
    server.cut()
    api.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}})


def test_long_lists_come_in_pages(server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand jobs of some megabytes as one answer would be refused or run into the time-out."""
    monkeypatch.setattr(access, "PAGE", 50)
    for number in range(120):
        server.put("pods", {"metadata": {"name": f"p{number:03}"}})
    assert len({found["metadata"]["name"] for found in api.list(PODS)}) == 120
    assert server.count("list", "pods") == 3
    assert list(api.list(CONFIG_MAPS)) == []


def test_a_list_that_takes_long_goes_on(server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that compacts its history while many jobs are listed must not end the command."""
    monkeypatch.setattr(access, "PAGE", 50)
    for number in range(120):
        server.put("pods", {"metadata": {"name": f"p{number:03}"}})
    pages = api.pages(PODS)
    next(pages)
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {"continue": "50"}}
    server.fail("list", "pods", lambda handler: handler.answer(410, expired))
    assert len([found for page in pages for found in page["items"]]) == 70


def test_what_is_not_there_is_none_or_deleted(server: ApiServer, api: Api) -> None:
    """Deleting twice, or after somebody else, is no error."""
    assert api.find(PODS, "p") is None
    assert not api.delete(PODS, "p")
    server.put("pods", {"metadata": {"name": "p"}})
    assert api.delete(PODS, "p", grace=0)
    assert json.loads(server.seen[-1][2]["body"]) == {"propagationPolicy": "Background", "gracePeriodSeconds": 0}


def test_nothing_secret_is_in_an_error(server: ApiServer, api: Api) -> None:
    """Errors are pasted into tickets."""
    server.fail("create", "secrets", refuse(422, "Invalid", "data: too long"))
    with pytest.raises(EngineError) as raised:
        api.create(SECRETS, {"metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}})
    assert "aHVudGVyMg==" not in str(raised.value)
    assert server.token not in str(raised.value)
